"""Observers look and never change what is computed."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console

from metareplay.experiments.observers import ObserverList, ProgressFile, TensorBoard
from metareplay.experiments.plan import Plan
from metareplay.experiments.run import Run
from metareplay.learner.config import RunConfig
from metareplay.strategies.base import LossTerms
from metareplay.training.loop import Step
from metareplay.training.progress import LiveProgress, NullObserver, Stage


def step(iteration: int, iterations: int = 10) -> Step:
    return Step(iteration, iterations, LossTerms(torch.tensor(1.5), torch.tensor(2.5), torch.tensor(0.25)))


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_shows_tasks_and_scores(
    terminal: bool, tmp_path: Path, tiny_config: Callable[..., RunConfig], assert_same_run: Callable[[Path, Path], None]
) -> None:
    text = io.StringIO()
    watched = LiveProgress(Console(file=text, force_terminal=terminal, width=160))
    Run(Plan.of(tiny_config(), tmp_path / "watched"), observer=ObserverList([watched, NullObserver()])).execute()
    shown = text.getvalue()
    assert all(f"task {number}/3" in shown for number in (1, 2, 3))
    assert shown.count("learned") == 3
    assert ("replay" in shown) == terminal  # loss terms live in the bar
    Run(Plan.of(tiny_config(), tmp_path / "unseen")).execute()
    assert_same_run(tmp_path / "watched", tmp_path / "unseen")


def test_a_progress_file_says_how_far_and_goes_away(tmp_path: Path) -> None:
    watcher = ProgressFile(tmp_path / "progress.json")
    watcher.stage_begins(Stage(1, 4, "b"), 0, 10)
    watcher.step(step(5))
    assert json.loads((tmp_path / "progress.json").read_text()) == {"task": 1, "share": (1 + 0.5) / 4}
    watcher.close()
    assert list(tmp_path.iterdir()) == []


def test_several_pass_everything_on(tmp_path: Path) -> None:
    class Ear(NullObserver):
        def __init__(self) -> None:
            self.heard: list[str] = []

        def message(self, text: str) -> None:
            self.heard.append(text)

        def stage_begins(self, stage: Stage, iteration: int, iterations: int) -> None:
            self.heard.append(stage.name)

        def step(self, step: Step) -> None:
            self.heard.append(f"step {step.iteration}")

        def stage_ends(self, stage: Stage, scores: object) -> None:
            self.heard.append("end")

        def close(self) -> None:
            self.heard.append("closed")

    ears = [Ear(), Ear()]
    both = ObserverList(ears)
    both.message("hello")
    both.stage_begins(Stage(0, 1, "first"), 0, 1)
    both.step(step(1))
    both.stage_ends(Stage(0, 1, "first"), [1.0])
    both.close()
    assert [ear.heard for ear in ears] == [["hello", "first", "step 1", "end", "closed"]] * 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_writes_the_curves(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    watcher = TensorBoard(tmp_path / "board", every=5)
    for task in range(2):
        stage = Stage(task, 2, "name")
        watcher.stage_begins(stage, 0, 10)
        for iteration in range(1, 11):
            watcher.step(step(iteration))
        watcher.stage_ends(stage, [90.0] * (task + 1))
    watcher.close()
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"loss/data", "loss/prior", "loss/replay", "given/task-0", "given/task-1"}
    assert [(event.step, event.value) for event in events.Scalars("loss/prior")] == [
        (5, 2.5),
        (10, 2.5),
        (15, 2.5),
        (20, 2.5),
    ]
    assert [(event.step, event.value) for event in events.Scalars("given/task-0")] == [(0, 90.0), (1, 90.0)]
