"""``metareplay tune``: what it shows, writes and refuses. The workers run in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna")
TINY = ("--set", "training.iterations=2", "--set", "inference.samples=3", "--set", "inference.batch_wise=20")


class Here:
    """An engine that does the work itself."""

    waits = True

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
    rows = [f"{x / 40},{(x * 7) % 11},{'ab'[x % 2]}{x // 40},t{x // 40}" for x in range(80)]
    data.write_text("\n".join(["one,two,label,season", *rows]))
    study = ("tune", "--data", data, "--tasks-by", "season", "--method", "pr-dirac", "--space", space, *TINY)
    call = (*study, "--first-tasks", 1, "--objective", "both", "--out", tmp_path / "study")
    first = command(*call, "--trials", 1)
    assert first.code == 0, first.err
    for words in ("the first 1 tasks alone; 20 %", "the test set unused", "the mean of that with the task given"):
        assert words in first.out
    again = command(*call, "--trials", 2, "--write-recipe", tmp_path / "best.yaml")
    assert again.code == 0, again.err
    assert "trials: 2 finished" in again.out
    page = (tmp_path / "study" / "report.html").read_text()
    assert "Settings of pr-dirac on custom" in page
    assert "the first 1 tasks alone" in page
    assert page.count("<svg") == 3
    assert "# Protocol: the first 1 tasks alone" in (tmp_path / "best.yaml").read_text()
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
    other = command(*study, "--out", tmp_path / "study")
    assert other.code == 2
    assert "holds another study" in other.err


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
    (("--first-tasks", 9), "has 3 tasks"),
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
