"""``metareplay run`` and ``report`` from end to end."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from metareplay.learner.recipe_book import Recipe, all_recipes
from metareplay.settings import flatten

Command = Callable[..., Any]


def figures(folder: Path) -> dict[str, Any]:
    """Everything results.json says but the time and memory it took."""
    results: dict[str, Any] = json.loads((folder / "results.json").read_text())
    assert results.pop("seconds")
    assert results.pop("peak_memory_mib")
    return results


def snapshot(folder: Path, *but: str) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in but]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.usefixtures("no_maps")
def test_a_run_leaves_its_folder_and_shows_a_table(command: Command, tiny: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = command("run", "modes-2d", *tiny, "--out", folder)
    assert (result.code, result.err) == (0, "")
    assert "pr-bbb on modes-2d, seed 0" in result.out
    assert f"report: {folder / 'report.html'}" in result.out
    expected = {"config.yaml", "results.json", "metrics.jsonl", "checkpoint", "model", "log.txt", "report.html"}
    assert {path.name for path in folder.iterdir()} >= expected
    assert "pr-bbb" in (folder / "report.html").read_text()


@pytest.mark.usefixtures("no_report")
def test_a_finished_run_is_not_repeated(command: Command, tiny: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = command("run", "modes-2d", "--method", "sp-dirac", *tiny, "--out", folder)
    before = snapshot(folder, "report.html")
    again = command("run", "--out", folder, "--resume", "--quiet")
    assert again.code == 0
    assert again.out == first.out  # the same table
    assert snapshot(folder, "report.html") == before


@pytest.mark.usefixtures("no_report")
def test_a_finished_run_of_another_configuration_is_refused(command: Command, tiny: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command("run", "modes-2d", "--method", "sp-dirac", *tiny, "--out", folder)
    before = snapshot(folder)
    result = command("run", "modes-2d", "--method", "sp-dirac", *tiny, "--seed", 5, "--out", folder, "--resume")
    assert result.code == 2
    assert "holds a finished run with another configuration" in result.err
    assert snapshot(folder) == before


@pytest.mark.usefixtures("no_report")
def test_an_existing_folder_is_refused_and_overwritten_only_on_request(
    command: Command, tiny: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    options = ["run", "modes-2d", "--method", "sp-dirac", *tiny, "--out", folder]
    command(*options)
    before = snapshot(folder)
    refused = command(*options, "--seed", 3)
    assert refused.code == 2
    assert "--resume" in refused.err
    assert "--overwrite" in refused.err
    assert snapshot(folder) == before
    assert command(*options, "--seed", 3, "--overwrite").code == 0
    assert figures(folder)["seed"] == 3


def test_overwrite_removes_nothing_that_is_no_run(command: Command, tiny: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    result = command("run", "modes-2d", *tiny, "--out", tmp_path / "mine", "--overwrite")
    assert result.code == 2
    assert "contains more than a run (it holds thesis.tex)" in result.err
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "precious"


@pytest.mark.usefixtures("no_report")
def test_a_configuration_file_repeats_a_run(command: Command, tiny: list[str], tmp_path: Path) -> None:
    command("run", "modes-2d", *tiny, "--seed", 7, "--set", "training.learning_rate=1e-2", "--out", tmp_path / "first")
    result = command("run", "--config", tmp_path / "first" / "config.yaml", "--quiet", "--out", tmp_path / "second")
    assert result.code == 0
    assert figures(tmp_path / "first") == figures(tmp_path / "second")
    assert snapshot(tmp_path / "first")["metrics.jsonl"] == snapshot(tmp_path / "second")["metrics.jsonl"]


@pytest.mark.usefixtures("no_report")
def test_later_settings_win(command: Command, tiny: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("method: sp-dirac\ntraining: {iterations: 3, learning_rate: 0.5}\nseed: 1\n")
    options = ["--seed", "2", "--set", "training.learning_rate=1e-2", "--set", "inference.samples=2"]
    result = command(
        "run", "modes-2d", "--config", tmp_path / "mine.yaml", *options, "--quiet", "--out", tmp_path / "run"
    )
    assert result.code == 0
    stored = flatten(yaml.safe_load((tmp_path / "run" / "config.yaml").read_text()))
    expected = {
        "benchmark": "modes-2d",
        "method": "sp-dirac",
        "seed": 2,
        "training.iterations": 3,
        "training.learning_rate": 0.01,
    }
    assert {key: stored[key] for key in expected} == expected


@pytest.mark.usefixtures("no_report")
def test_the_default_folder_is_named_after_the_run(
    command: Command, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("run", "modes-2d", "--method", "sp-dirac", "--network", "mlp-4", *tiny).code == 0
    assert (tmp_path / "runs" / "modes-2d-sp-dirac-mlp-4" / "results.json").is_file()


@pytest.mark.usefixtures("no_report")
def test_a_run_says_what_it_does(command: Command, tiny: list[str], tmp_path: Path) -> None:
    result = command(
        "run",
        "modes-2d",
        "--method",
        "sp-dirac",
        *[word for word in tiny if word != "--quiet"],
        "--out",
        tmp_path / "run",
    )
    assert result.out.startswith(
        "sp-dirac on modes-2d (scenario class, 3 tasks), mlp-10-10\nsettings: published with the paper"
    )
    assert "task 3/3" in result.out


@pytest.mark.usefixtures("no_report")
def test_the_published_recipe_can_be_asked_for(
    command: Command, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a resumed run says where its settings are, not which recipe another run would take."""
    fast = Recipe("modes-2d", "sp-dirac", "mlp-10-10", "by this project", {"training.learning_rate": 0.123}, fast=True)
    recipes = (*all_recipes(), fast)
    monkeypatch.setattr("metareplay.learner.recipe_book.all_recipes", lambda: recipes)
    options = [word for word in tiny if word != "--quiet"]
    result = command("run", "modes-2d", "--method", "sp-dirac", *options, "--out", tmp_path / "own")
    assert "settings: by this project" in result.out
    result = command("run", "modes-2d", "--method", "sp-dirac", "--published", *options, "--out", tmp_path / "run")
    assert "settings: published with the paper" in result.out
    (tmp_path / "run" / "results.json").unlink()
    result = command("run", "modes-2d", "--method", "sp-dirac", "--resume", "--out", tmp_path / "run")
    assert result.code == 0
    assert "settings: as stored in" in result.out
    assert "by this project" not in result.out


@pytest.mark.usefixtures("no_report")
def test_a_full_disk_is_one_message_and_the_run_goes_on_later(
    command: Command, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, left, fsync = ["run", "modes-2d", "--method", "pr-dirac", *tiny, "--out"], [12], os.fsync

    def full(handle: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        result = command(*options, tmp_path / "full")
    assert result.code == 2
    assert result.err.startswith("error: cannot write ")
    assert "No space left on device; what was stored before is untouched" in result.err
    assert result.err.count("\n") == 1
    assert len(list((tmp_path / "full" / "checkpoint").glob("step-*"))) == 2
    assert command("run", "--out", tmp_path / "full", "--resume", "--quiet").code == 0
    command(*options, tmp_path / "whole")
    assert figures(tmp_path / "full") == figures(tmp_path / "whole")


@pytest.mark.slow  # in short: test_resume_finds_the_seeds_of_the_default_folder, test_one_failing_row_leaves_the_others
def test_seeds_side_by_side(command: Command, tiny: list[str], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each in a process of its own."""
    options = ["modes-2d", "--method", "sp-dirac", *tiny]
    many = ("--seed", 4, "--seeds", 2, "--jobs", 2, "--out", tmp_path / "many")
    result = command("run", *options, *many)
    assert (result.code, result.err) == (0, "")
    assert "2 seeds, mean ± standard error" in result.out
    request.getfixturevalue("no_report")  # drawn once is enough
    for seed in (4, 5):
        command("run", *options, "--seed", seed, "--out", tmp_path / f"alone-{seed}")
        assert figures(tmp_path / "many" / f"seed-{seed}") == figures(tmp_path / f"alone-{seed}")
    summary = json.loads((tmp_path / "many" / "summary.json").read_text())
    each = [figures(tmp_path / "many" / f"seed-{seed}")["tgiven_final"] for seed in (4, 5)]
    assert summary["seeds"] == [4, 5]
    assert summary["tgiven_final"]["mean"] == pytest.approx(sum(each) / 2)
    assert (tmp_path / "many" / "report.html").is_file()


@pytest.mark.usefixtures("no_maps")
def test_a_report_of_several_runs(
    command: Command, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("metareplay.report.write_report", lambda folders, out: out)  # but for the comparison
        for method in ("sp-dirac", "fine-tuning"):
            command("run", "modes-2d", "--method", method, *tiny, "--out", tmp_path / method)
    result = command("report", tmp_path / "sp-dirac", tmp_path / "fine-tuning", "--out", tmp_path / "compare.html")
    assert (result.code, result.out) == (0, f"report: {tmp_path / 'compare.html'}\n")
    page = (tmp_path / "compare.html").read_text()
    assert "sp-dirac" in page
    assert "fine-tuning" in page


@pytest.mark.usefixtures("no_report")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_files_beside_a_run(command: Command, tiny: list[str], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    result = command("run", "modes-2d", "--method", "sp-dirac", *tiny, "--tensorboard", "--out", tmp_path / "run")
    assert result.code == 0
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*"))
