"""``metareplay reproduce``: the table, what it leaves on disk, and that nothing is done twice."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metareplay.report.records import read_records

SHORTER = "inference.samples-3-training.iterations-10"
OPTIONS = ("--quiet", "--budget", "0.002", "--set", "inference.samples=3", "--set", "inference.batch_wise=20")


@pytest.mark.usefixtures("seeds_here", "no_maps")
@pytest.mark.parametrize("seeds", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_table_is_run_printed_written_and_not_repeated(
    seeds: int, command: Callable[..., Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    out = tmp_path / "gmm"
    rows = ("reproduce", "gmm", "--rows", "pr-dirac,SP-Dirac", "--seeds", seeds, "--jobs", 2, "--out", out, *OPTIONS)
    answer = command(*rows)
    assert answer.code == 0, answer.err
    for words in (
        "2D modes: accuracies (sm:tab:gmm)",
        "PR-Dirac",
        "SP-Dirac",
        "TInfer-Final ent",
        "44.90 ± 5.74",
        "0.2 %",
        "Training was shorter or longer",
    ):
        assert words in " ".join(answer.out.split())
    table = json.loads((out / "table.json").read_text())
    assert {figure["seeds"] for figure in table["figures"] if figure["figure"] == "ent"} == {seeds}
    assert "| PR-Dirac | TGiven-During |" in (out / "table.md").read_text()
    assert (out / "report.html").is_file()
    times = {path: path.stat().st_mtime_ns for path in out.glob("*/seed-*/results.json")}
    assert len(times) == 2 * seeds
    request.getfixturevalue("no_report")  # drawn once is enough
    again = command(*rows, "--record", tmp_path / "records")
    assert again.code == 0
    recorded = read_records(tmp_path / "records")["modes-2d/pr-dirac-mlp-10-10-published-" + SHORTER]
    assert recorded.command.startswith("metareplay reproduce gmm --rows pr-dirac --set inference.samples=3 --set ")
    assert recorded.command.endswith("--budget=0.002 --seed SEED")
    assert recorded.seeds == list(range(seeds))
    assert len(list((tmp_path / "records").rglob("*.json"))) == 2
    assert {path: path.stat().st_mtime_ns for path in times} == times
    more = command("reproduce", "gmm", "--rows", "pr-dirac", "--seeds", 1, "--out", out, *OPTIONS)  # a part of it again
    assert more.code == 0
    assert "SP-Dirac" not in more.out


def test_a_dry_run_lists_and_runs_nothing(command: Callable[..., Any], tmp_path: Path) -> None:
    answer = command(
        "reproduce", "gmm", "--rows", "sp-dirac,pr-dirac", "--seeds", 2, "--dry-run", "--out", tmp_path / "gmm"
    )
    assert answer.code == 0, answer.err
    assert answer.out.count("sp-dirac seed") == 2
    assert "10001" in answer.out
    assert "of training one after another" in answer.out
    assert not (tmp_path / "gmm").exists()


def test_a_dry_run_without_the_data_says_so(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    options = ("--rows", "pr-dirac", "--dry-run", "--data-dir", tmp_path / "nosuch")
    answer = command("reproduce", "split-mnist", *options)
    assert answer.code == 0, answer.err
    assert "pr-dirac cannot be timed" in answer.out
    assert "nosuch" in answer.out
    assert "1 of 1 runs cannot be estimated" in answer.out
    assert "0 s of training" not in answer.out


def test_one_failing_row_leaves_the_others(command: Callable[..., Any], tmp_path: Path) -> None:
    bad = ("--set", "training.learning_rate=1e30")
    out = tmp_path / "gmm"
    answer = command("reproduce", "gmm", "--rows", "sp-dirac", "--out", out, *OPTIONS, *bad)
    assert answer.code == 2
    assert "sp-dirac seed 0 stopped: " in answer.err
    assert "The other runs are kept" in answer.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gmn",), "did you mean 'gmm'"),
        (("gmm", "--rows", "foo"), "has no row 'foo'"),
        (("gmm", "--rows", ","), "names no row"),
        (("gmm", "--set", "method=vcl"), "the row determines the method"),
        (("gmm", "--budget", "2"), "must be above 0"),
        (("gmm", "--set", "training.iteration=3"), "training.iteration"),
    ],
)
def test_errors_name_what_is_wrong(
    command: Callable[..., Any], tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    answer = command("reproduce", *arguments, "--out", tmp_path / "out")
    assert answer.code == 2
    assert words in answer.err
    assert "Traceback" not in answer.err
