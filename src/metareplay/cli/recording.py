"""``--record``: measured figures as small files, from which the tables of the documents are made."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from metareplay.errors import ConfigError

RecordTo = Annotated[
    Path | None,
    typer.Option("--record", metavar="FOLDER", help="Also write the figures to this folder of records (results/)."),
]


def record_finished(folder: Path, runs: Sequence[Path], command: str | None = None) -> None:
    """Record the finished runs in some folders, and say where."""
    from metareplay.report.records import record_runs

    for path in record_runs(folder, runs, command):
        typer.echo(f"recorded: {path}")


def refuse_file(folder: Path | None) -> None:
    """Refuse a file in the place of the folder of records, before anything is run."""
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ConfigError(f"--record {folder} is a file; name a folder")


def has_finished(folder: Path) -> bool:
    """Whether there is a finished run in a folder."""
    return any(True for _ in folder.rglob("results.json"))
