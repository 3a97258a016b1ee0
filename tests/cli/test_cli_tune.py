"""``metareplay tune``: what it shows, writes and refuses. The workers run in this process."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metareplay.cli.tune import HELP
from metareplay.errors import TrainingDiverged
from metareplay.texts import read_yaml

pytest.importorskip("optuna")
TINY = ("--set", "training.iterations=2", "--set", "inference.samples=3", "--set", "inference.batch_wise=20")


class Waiting:
    """What engines of these tests have in common."""

    waits, queues = True, False

    def threads(self, jobs: int) -> int:
        return 1


class Here(Waiting):
    """An engine that does the work itself."""

    def run(self, jobs: Any, **_: Any) -> dict[int, str]:
        from metareplay.experiments.tuning.worker import work

        *_, folder, trials = jobs[0].command
        work(Path(folder), int(trials))
        return {}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metareplay.cli.engine_options.chosen_engine", lambda on, resources: Here())


def test_a_study_is_shown_continued_and_written(
    command: Callable[..., Any], tmp_path: Path, here: None, no_report: None
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("training.learning_rate: {low: 1e-4, high: 1e-1, log: true}\nstrategy.strength: [0.1, 10]\n")
    data = tmp_path / "data.csv"
    rows = [f"{x / 40},{(x * 7) % 11},{'ab'[x % 2]}{x // 40},t{x // 40}" for x in range(120)]
    data.write_text("\n".join(["one,two,label,season", *rows]))
    study = ("tune", "--data", data, "--tasks-by", "season", "--method", "pr-dirac", "--space", space, *TINY)
    call = (*study, "--first-tasks", 2, "--objective", "both", "--out", tmp_path / "study")
    first = command(*call, "--trials", 1)
    assert first.code == 0, first.err
    for words in (
        "tune pr-dirac on data.csv",
        "the first 2 tasks alone; 20 %",
        "the test set unused",
        "the mean of that with the task given",
    ):
        assert words in first.out
    again = command(*call, "--trials", 2, "--write-recipe", tmp_path / "best.yaml")
    assert again.code == 0, again.err
    assert "trials: 2 finished" in again.out
    page = (tmp_path / "study" / "report.html").read_text()
    assert "Settings of pr-dirac on data.csv" in page
    assert "the first 2 tasks alone" in page
    assert page.count("<svg") == 3
    assert "# Protocol: the first 2 tasks alone" in (tmp_path / "best.yaml").read_text()
    run = command(
        "run",
        "--config",
        tmp_path / "best.yaml",
        "--out",
        tmp_path / "run",
        "--quiet",
        "--set",
        "report.references=false",
    )
    assert run.code == 0, run.err
    other = command(*study, "--out", tmp_path / "study", "--method", "sp-dirac", "--space", "small")
    assert other.code == 2
    assert "holds another study: its method is pr-dirac, not sp-dirac" in other.err


class Asked(Waiting):
    """An engine that is stopped before anything has ended."""

    def run(self, jobs: Any, **_: Any) -> dict[int, str]:
        signal.raise_signal(signal.SIGINT)
        return {}


def test_a_study_that_is_stopped_says_so_and_is_no_success(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_report: None
) -> None:
    monkeypatch.setattr("metareplay.cli.engine_options.chosen_engine", lambda on, resources: Asked())
    call = ("tune", "modes-2d", "--method", "sp-dirac", "--space", "small", *TINY, "--out", tmp_path / "study")
    answer = command(*call, "--trials", 3, "--write-recipe", tmp_path / "best.yaml")
    assert answer.code == 2
    assert "stopped; 0 of 3 trials have ended" in answer.err
    assert "best.yaml was not written; repeat the command to continue" in answer.err
    assert command(*call, "--trials", 3).code == 2


def test_a_study_whose_trials_have_all_failed_is_an_error(
    command: Callable[..., Any], tmp_path: Path, here: None, no_report: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverges(*_: Any, **__: Any) -> None:
        raise TrainingDiverged("the loss is not finite")

    monkeypatch.setattr("metareplay.experiments.tuning.worker.Run.execute", diverges)
    call = ("tune", "modes-2d", "--method", "sp-dirac", "--space", "small", *TINY, "--out", tmp_path / "study")
    answer = command(*call, "--trials", 2)
    assert answer.code == 2
    assert "trial 0 failed: the loss is not finite" in answer.out
    assert "no trial has finished: all that were begun" in answer.err


def test_one_task_alone_is_tuned_with_the_task_given(
    command: Callable[..., Any], tmp_path: Path, here: None, no_report: None
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("training.batch_size: [8]\n")  # nothing to compare
    call = ("tune", "modes-2d", "--method", "sp-dirac", "--first-tasks", 1, *TINY, "--out", tmp_path / "study")
    answer = command(*call, "--space", space, "--trials", 1)
    assert answer.code == 0, answer.err
    assert "final accuracy in %, with the task given" in answer.out
    assert "protocol: the first task alone;" in answer.out


def test_options_for_own_data_are_those_of_run(command: Callable[..., Any], tmp_path: Path, here: None) -> None:
    rows = [f"{x / 40},{(x * 7) % 11},{x % 2},t{x // 40},{'test' if x % 4 == 3 else 'train'}" for x in range(80)]
    data = tmp_path / "data.csv"
    data.write_text("\n".join(["one,two,label,season,part", *rows]))
    study = ("tune", "--data", data, "--tasks-by", "season", "--split-by", "part", "--task-order", "t1,t0")
    answer = command(
        *study,
        "--problem",
        "regression",
        "--method",
        "sp-dirac",
        "--device",
        "cpu",
        *TINY,
        "--list",
        "--out",
        tmp_path / "s",
    )
    assert answer.code == 0, answer.err
    stored = read_yaml((tmp_path / "s" / "study.yaml").read_text())
    assert stored["problem"] == "regression"
    assert (stored["base"]["data"]["split_by"], stored["base"]["data"]["task_order"]) == ("part", ["t1", "t0"])


def test_the_commands_of_workers_are_listed(command: Callable[..., Any], tmp_path: Path) -> None:
    answer = command("tune", "modes-2d", *TINY, "--jobs", 2, "--list", "--out", tmp_path / "study", "--hours", 3)
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert len(lines) == 2
    assert all(f"metareplay.experiments.tuning.worker {tmp_path / 'study'} 30 --hours 3" in line for line in lines)


WRONG = [
    (("--set", "tasks.validation=0"), "use --held-out"),
    (("--set", "seed=1"), "use --seed"),
    (("--space", "nosuch.yaml"), "--space nosuch.yaml cannot be read"),
    (("--sampler", "grid", "--space", "small"), "grid sampler needs lists"),
    (("--first-tasks", 9), "(--first-tasks of metareplay tune), but modes-2d has 3 tasks; choose at most 3"),
    (("--first-tasks", 1, "--objective", "inferred"), "only one with --first-tasks 1; choose --objective given"),
    (("--first-tasks", 1, "--objective", "both"), "--objective both needs at least two tasks"),
    (("--write-recipe", "."), "--write-recipe . is a folder; name a file"),
    (("--out", __file__), "is a file; name the folder of the study"),
    (("--out", Path(__file__).parent), "already exists and holds no study"),
    (("--on", "moon"), "choose local, slurm, ray or ray=ADDRESS"),
    (("--on", "slurm", "--resources", "cpus=many"), "give a number"),
]


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_what_cannot_be_is_refused(
    command: Callable[..., Any], tmp_path: Path, options: tuple[Any, ...], words: str
) -> None:
    answer = command("tune", "modes-2d", "--out", tmp_path / "study", *options)
    assert answer.code == 2
    assert words in answer.err
    assert not (tmp_path / "study" / "study.yaml").exists()


def test_the_examples_of_spaces_in_the_help_can_be_used(command: Callable[..., Any], tmp_path: Path) -> None:
    lines = [line for line in HELP.splitlines() if "--space" in line]
    assert len(lines) == 2
    for number, line in enumerate(lines):
        call, _, content = line.strip().partition("   ")
        words = call.removeprefix("metareplay ").split()
        space = tmp_path / words[words.index("--space") + 1]
        space.write_text(content.strip())
        words[words.index("--space") + 1] = str(space)
        answer = command(*words, "--list", "--out", tmp_path / f"study-{number}")
        assert answer.code == 0, answer.err
    assert "grid" in lines[1]
