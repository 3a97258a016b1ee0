"""``metareplay report``: one self-contained page about one run or many."""

from pathlib import Path
from typing import Annotated

import typer

from metareplay.cli.recording import RecordTo, record_finished, refuse_file

HELP = """Write one self-contained HTML page about one run or many.

[bold]Examples[/]

  metareplay report runs/demo

  metareplay report runs/pr-bbb runs/sp-bbb --out compare.html

  metareplay report runs/pr-bbb --record results         the figures of finished runs as records
"""


def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs, or folders with seed-0, seed-1, ... inside.")],
    out: Annotated[Path | None, typer.Option(help="The page. Default: report.html in the first folder.")] = None,
    record: RecordTo = None,
) -> None:
    """Write the page and say where it is."""
    from metareplay.files import refuse_special
    from metareplay.report import write_report

    if out is not None:
        refuse_special(out)
    refuse_file(record)
    page = write_report(folders, out or folders[0] / "report.html")
    typer.echo(f"report: {page}")
    if record is not None:
        record_finished(record, folders)
