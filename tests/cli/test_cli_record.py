"""``--record``: a run and its finished folder give the same record (tables of the paper: test_cli_reproduce.py)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metareplay.report.records import read_records


@pytest.mark.usefixtures("no_report")
def test_runs_and_finished_folders_are_recorded(command: Callable[..., Any], tiny: list[str], tmp_path: Path) -> None:
    records, out = tmp_path / "records", tmp_path / "run"
    told = command("run", "regression-1d", *tiny[:7], "--out", out, "--record", records, "--seed", 3)
    assert told.code == 0, told.err
    (path,) = records.rglob("*.json")
    assert f"recorded: {path}" in told.out
    first = path.read_text()
    path.unlink()
    assert command("report", out, "--record", records).code == 0
    assert path.read_text() == first
    ((name, recorded),) = read_records(records).items()
    words = "inference.samples=3 --set training.checkpoint_every=3 --set training.iterations=8"
    assert recorded.command.startswith("metareplay run regression-1d --method pr-bbb --network mlp-10-10 --set ")
    assert words in recorded.command
    assert name.startswith("regression-1d/pr-bbb-mlp-10-10-")
    assert recorded.seeds == [3]
    assert {"tgiven_final", "right_task.variance", "seconds.train"} <= set(recorded.rows[0].figures)


def test_a_file_is_not_a_folder_of_records(command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = command("report", tmp_path, "--record", tmp_path / "file")
    assert told.code == 2
    assert "--record" in told.err
