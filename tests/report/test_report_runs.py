"""What the report reads: run folders, whole, in parts or broken."""

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metareplay.errors import DataError
from metareplay.report import write_report
from metareplay.report.runs import find_runs, group_runs

Results = Callable[..., dict[str, Any]]
MakeRun = Callable[..., Path]
Report = Callable[[list[Path], Path], Any]


def test_a_run_named_twice_counts_once(
    report: Report, make_lean_run: MakeRun, make_lean_results: Results, tmp_path: Path
) -> None:
    folder = make_lean_run("runs/seed-0", make_lean_results())
    page = report([folder, folder.parent], tmp_path / "report.html")
    assert "seed 0." in page.visible


def test_settings_that_earlier_versions_lacked_are_named_only_where_nothing_else_differs(
    make_lean_run: MakeRun, make_lean_results: Results
) -> None:
    def labels(*configs: dict[str, Any]) -> list[str]:
        number = next(count)
        folders = [make_lean_run(f"{number}-{i}", make_lean_results(), config) for i, config in enumerate(configs)]
        return [group.label for group in group_runs(find_runs(folders).runs)]

    count = itertools.count()
    new = {"statistics": {"collect": True}}
    shorter, longer = ({"training": {"iterations": number}} for number in (10, 20))
    assert labels(shorter, longer | new) == ["pr-bbb (iterations=10)", "pr-bbb (iterations=20)"]
    assert labels(shorter, shorter | new) == ["pr-bbb", "pr-bbb (collect=True)"]


def test_unfinished_runs_are_named_and_left_out(
    report: Report, make_lean_run: MakeRun, make_lean_results: Results, tmp_path: Path
) -> None:
    make_lean_run("runs/seed-0", make_lean_results())
    unfinished = make_lean_run("runs/seed-1", make_lean_results(seed=1))
    (unfinished / "results.json").unlink()
    (tmp_path / "runs/seed-0/model").mkdir()
    (tmp_path / "runs/seed-0/model/config.yaml").write_text("seed: 0")
    page = report([tmp_path / "runs"], tmp_path / "report.html")
    assert f"Left out, because they have not finished (results.json is missing): {unfinished}." in page.visible


@pytest.mark.parametrize("kind", ["missing", "empty", "file", "unfinished"])
def test_a_folder_without_results_is_refused(
    kind: str, make_run: MakeRun, make_results: Results, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    if kind == "unfinished":
        make_run("run", make_results())
        (folder / "results.json").unlink()
    elif kind == "empty":
        folder.mkdir()
    elif kind == "file":
        folder.write_text("")
    words = rf"^{re.escape(str(folder))} is not a finished run: results.json is missing; .*--resume"
    with pytest.raises(DataError, match="^there is no folder .*run;" if kind == "missing" else words):
        write_report([folder], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder was given"):
        write_report([], tmp_path / "report.html")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("results.json", "{", "results.json is not valid JSON"),
        ("results.json", "[]", "does not have schema 1"),
        ("results.json", json.dumps({"schema": 2}), "does not have schema 1"),
        ("results.json", json.dumps({"schema": 1, "method": "vcl"}), "lacks benchmark, network, seed, num_tasks"),
        ("config.yaml", "a: [", "config.yaml is not valid YAML: at the end: "),
        ("metrics.jsonl", '{"task": 0, "iteration": 1, "loss": 1}\n{"task": 0', "metrics.jsonl, line 2"),
        ("metrics.jsonl", '{"loss": 1}', "metrics.jsonl, line 1"),
        ("metrics.jsonl", '{"task": 0, "iteration": 1, "loss": {}}', "line 1 is not a training record: loss: input"),
        ("metrics.jsonl", '{"task": 1e30, "iteration": 1}', "line 1 is not a training record: task: "),
        ("metrics.jsonl", "[" * 3000, "metrics.jsonl, line 1 is not a training record"),
        ("config.yaml", "a: &a [*a]", "config.yaml is not valid YAML: line 1: the value contains itself"),
        ("predictive.safetensors", "no tensors", "predictive.safetensors cannot be read"),
    ],
)
def test_broken_files_are_named(
    file: str, content: str, message: str, make_run: MakeRun, make_results: Results, tmp_path: Path
) -> None:
    folder = make_run("run", make_results())
    (folder / file).write_text(content)
    with pytest.raises(DataError, match=re.escape(message)):
        write_report([folder], tmp_path / "report.html")


def test_arrays_that_are_not_there_are_named(
    make_run: MakeRun, make_results: Results, add_modes_arrays: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = make_run("run", make_results())  # five tasks, arrays of three
    add_modes_arrays(folder)
    with pytest.raises(DataError, match="lacks 'train_x_3'"):
        write_report([folder], tmp_path / "report.html")


def test_only_results_are_needed(report: Report, make_run: MakeRun, make_results: Results, tmp_path: Path) -> None:
    nothing = dict.fromkeys(("task_confusion", "environment", "seconds", "parameters", "batch_wise", "scenario"))
    folder = make_run("run", make_results() | nothing)
    for name in ("config.yaml", "metrics.jsonl"):
        (folder / name).unlink()
    page = report([folder], tmp_path / "report.html")
    assert "Learning curves" not in page.visible
    assert "The folder holds no config.yaml." in page.visible


def test_lines_written_twice_by_a_resumed_run_count_once(
    make_run: MakeRun, make_lean_results: Results, tmp_path: Path
) -> None:
    folder = make_run("run", make_lean_results())
    before = write_report([folder], tmp_path / "a.html").read_bytes()
    metrics = folder / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(['{"task": 0, "iteration": 50, "loss": 9999.0}\n', *lines, *lines[-20:]]))
    assert write_report([folder], tmp_path / "b.html").read_bytes() == before


def test_a_folder_as_target_gets_a_report(make_lean_run: MakeRun, make_lean_results: Results, tmp_path: Path) -> None:
    folder = make_lean_run("run", make_lean_results())
    assert write_report([folder], folder) == folder / "report.html"
    assert (folder / "report.html").stat().st_mode & 0o777 == 0o644
