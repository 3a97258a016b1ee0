"""Who watches training: nobody, or a live progress bar. Observers only look; they never change what is computed."""

import time
from collections.abc import Sequence
from typing import Any, Protocol, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from metareplay.training.loop import Step

PLAIN_SECONDS = 5.0
"""How often progress is told where there is no terminal to draw a bar on."""
FINE_TUNING = "fine-tuning"
"""How the stage after the last task is called."""


class Observer(Protocol):
    """What a run tells while it works."""

    def message(self, text: str) -> None:
        """A sentence for people."""
        ...

    def task_begins(self, task: int, name: str, num_tasks: int, iteration: int, iterations: int) -> None:
        """A task starts, or continues at an iteration; ``task`` is ``num_tasks`` when all are fine-tuned after the last."""
        ...

    def step(self, step: Step) -> None:
        """One training step was done."""
        ...

    def task_ends(self, task: int, scores: Sequence[float]) -> None:
        """A task was learned and all tasks so far were tested."""
        ...

    def close(self) -> None:
        """The run is over, for whatever reason."""
        ...


class NullObserver:
    """Watches without a word."""

    def message(self, text: str) -> None:
        return None

    def task_begins(self, task: int, name: str, num_tasks: int, iteration: int, iterations: int) -> None:
        return None

    def step(self, step: Step) -> None:
        return None

    def task_ends(self, task: int, scores: Sequence[float]) -> None:
        return None

    def close(self) -> None:
        return None


@final
class LiveProgress(NullObserver):
    """A progress bar: task, iteration, loss terms, time left (of the whole run). Plain lines where there is no terminal."""

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
        self.title = self.name = ""

    def message(self, text: str) -> None:
        self.console.print(text, highlight=False)

    def task_begins(self, task: int, name: str, num_tasks: int, iteration: int, iterations: int) -> None:
        self.title, self.name = f"task {task + 1}/{num_tasks}" if task < num_tasks else FINE_TUNING, name
        num_tasks = max(num_tasks, task + 1)
        done = task * iterations + iteration
        if self.row is None:
            self.bar.start()
            self.row = self.bar.add_task("", title=self.title, terms="", total=num_tasks * iterations)
            self.begun = self.shown = time.monotonic()
            self.first = done
        self.total = num_tasks * iterations
        self.bar.update(self.row, completed=done, total=self.total, title=self.title, terms="")

    def step(self, step: Step) -> None:
        if self.row is None or (step.iteration % 10 and step.iteration != step.iterations):
            return
        terms = " ".join(f"{name} {float(value):.3g}" for name, value in step.terms._asdict().items())
        done = step.task * step.iterations + step.iteration
        self.bar.update(self.row, completed=done, terms=terms)
        now = time.monotonic()
        if not self.console.is_terminal and now - self.shown > PLAIN_SECONDS:
            left = (now - self.begun) * (self.total - done) / max(1, done - self.first)
            self.shown = now
            self.message(f"{self.title} iteration {step.iteration}/{step.iterations} {terms}, {left:.0f} s left")

    def task_ends(self, task: int, scores: Sequence[float]) -> None:
        shown = " ".join(f"{score:.4g}" for score in scores)
        what = "done" if self.title == FINE_TUNING else "learned"
        self.console.print(f"{self.title} ({self.name}) {what}; tasks so far, {self.unit}: {shown}", highlight=False)

    def close(self) -> None:
        self.bar.stop()
