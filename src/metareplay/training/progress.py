"""Observers of training: none, or a live progress bar. Observers never change what is computed."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from metareplay.terminal import shown
from metareplay.training.loop import Step

PLAIN_SECONDS = 5.0
"""Seconds between progress messages where there is no terminal to draw a bar on."""


class Stage(NamedTuple):
    """A stage of training: a task, or what follows the last one."""

    number: int
    """From 0, in the order of training."""
    tasks: int
    """The total number of tasks."""
    name: str
    """The name of the task, or of the update."""
    update: bool = False
    """Whether learned tasks are trained again, rather than a new one."""

    @property
    def title(self) -> str:
        """Its name in progress messages."""
        return "fine-tuning" if self.update else f"task {self.number + 1}/{self.tasks}"

    @property
    def total(self) -> int:
        """The number of stages known so far."""
        return max(self.tasks, self.number + 1)


class Observer(Protocol):
    """What a run reports while it works."""

    def message(self, text: str) -> None:
        """A sentence for people."""
        ...

    def stage_begins(self, stage: Stage, iteration: int, iterations: int) -> None:
        """A stage starts, or continues at an iteration."""
        ...

    def step(self, step: Step) -> None:
        """One training step of the stage was taken."""
        ...

    def stage_ends(self, stage: Stage, scores: Sequence[float]) -> None:
        """The stage is over, and all tasks so far were tested."""
        ...

    def close(self) -> None:
        """The run has ended, for whatever reason."""
        ...


class NullObserver:
    """Ignores everything."""

    def message(self, text: str) -> None:
        return None

    def stage_begins(self, stage: Stage, iteration: int, iterations: int) -> None:
        return None

    def step(self, step: Step) -> None:
        return None

    def stage_ends(self, stage: Stage, scores: Sequence[float]) -> None:
        return None

    def close(self) -> None:
        return None


@final
class LiveProgress(NullObserver):
    """A progress bar: task, iteration, loss terms, time left for the run. Plain lines where there is no terminal."""

    def __init__(self, console: Console, *, unit: str = "accuracy %") -> None:
        self.console, self.unit = console, unit
        self.bar = Progress(
            TextColumn("[bold]{task.fields[title]}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[terms]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=console,
            disable=not console.is_terminal,
        )
        self.row: Any = None
        self.begun = self.shown = 0.0
        self.first = self.total = 0
        self.stage = Stage(0, 0, "")

    def message(self, text: str) -> None:
        self.console.print(shown(text), highlight=False)

    def stage_begins(self, stage: Stage, iteration: int, iterations: int) -> None:
        self.stage, self.total = stage, stage.total * iterations
        done = stage.number * iterations + iteration
        if self.row is None:
            self.bar.start()
            self.row = self.bar.add_task("", title=stage.title, terms="", total=self.total)
            self.begun = self.shown = time.monotonic()
            self.first = done
        self.bar.update(self.row, completed=done, total=self.total, title=stage.title, terms="")

    def step(self, step: Step) -> None:
        if self.row is None or (step.iteration % 10 and step.iteration != step.iterations):
            return
        terms = " ".join(f"{name} {float(value):.3g}" for name, value in step.terms._asdict().items())
        done = self.stage.number * step.iterations + step.iteration
        self.bar.update(self.row, completed=done, terms=terms)
        now = time.monotonic()
        if not self.console.is_terminal and now - self.shown > PLAIN_SECONDS:
            left = (now - self.begun) * (self.total - done) / max(1, done - self.first)
            self.shown = now
            self.message(f"{self.stage.title} iteration {step.iteration}/{step.iterations} {terms}, {left:.0f} s left")

    def stage_ends(self, stage: Stage, scores: Sequence[float]) -> None:
        row = " ".join(f"{score:.4g}" for score in scores)
        words = (
            f"{stage.title} ({stage.name}) {'done' if stage.update else 'learned'}; tasks so far, {self.unit}: {row}"
        )
        self.console.print(shown(words), highlight=False)

    def close(self) -> None:
        self.bar.stop()
