"""What a run has measured so far; every checkpoint holds it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from metareplay.evaluation.continual import Moment
from metareplay.evaluation.evaluate import Tested
from metareplay.evaluation.uncertainty import calibration_error


@dataclass
class RunState:
    """Scores and times so far, as plain values."""

    matrix: list[list[float]] = field(default_factory=list)
    """After each task, the scores of all tasks so far, with the task given."""
    before: dict[str, Any] | None = None
    """The final figures as they were before fine-tuning on coresets, once it has begun."""
    tuned: list[float] | None = None
    """All tasks' scores after fine-tuning."""
    reliability: list[list[list[float]]] | None = None
    """What a reliability diagram shows of each task (T, 3, bins), as last tested; None for regression."""
    nll: list[float] | None = None
    """Mean negative log-probability of the right class of each task, as last tested; None for regression."""
    inferred: list[list[float]] = field(default_factory=list)
    """After each task, the scores of all tasks so far with the task inferred, if they are tracked."""
    inferred_tuned: list[float] | None = None
    """The same after fine-tuning."""
    starts: list[float] = field(default_factory=list)
    """Each task's score before its training, if it is tracked."""
    during: list[dict[str, Any]] = field(default_factory=list)
    """Old tasks' scores at some steps of a later task, if they are tracked: task, step, scores."""
    task_seconds: list[float] = field(default_factory=list)
    """Seconds from the beginning of each task to what was kept of it, tests excluded."""
    model_bytes: list[int] = field(default_factory=list)
    """The size of the stored model after each task."""
    warnings: list[dict[str, str]] = field(default_factory=list)
    """What went wrong with single tasks."""
    seconds: dict[str, float] = field(default_factory=lambda: {"train": 0.0, "evaluate": 0.0})
    serial: int = 0
    """The number of the last checkpoint."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "RunState":
        """From a checkpoint; fields that an older one lacks get their initial values."""
        return cls(**{entry.name: facts[entry.name] for entry in fields(cls) if entry.name in facts})

    def facts(self) -> dict[str, Any]:
        """For a checkpoint."""
        return asdict(self)

    def note_tests(self, tests: Sequence[Tested], *, learned: bool) -> list[float]:
        """Record all tasks' scores after a task was learned, or after fine-tuning; returns them."""
        row = [test.score for test in tests]
        bins = [test.reliability.tolist() for test in tests if test.reliability is not None]
        self.reliability = bins or None
        self.nll = [test.nll for test in tests if test.nll is not None] or None
        if learned:
            self.matrix.append(row)
        else:
            self.tuned = row
        return row

    def reliability_tensor(self) -> Tensor | None:
        """What a reliability diagram shows of each task (T, 3, bins)."""
        return None if self.reliability is None else torch.tensor(self.reliability, dtype=torch.float64)

    def calibration_errors(self) -> list[float]:
        """Of each task, with the task known; empty for regression."""
        bins = self.reliability_tensor()
        return [] if bins is None else [calibration_error(of_task) for of_task in bins]

    def moments(self) -> list[Moment]:
        """What was tracked during tasks."""
        return [Moment(entry["task"], entry["step"], tuple(entry["scores"])) for entry in self.during]

    def calibration_error(self) -> float | None:
        """Over all tasks' test inputs, with the task known."""
        bins = self.reliability_tensor()
        return None if bins is None else calibration_error(bins.sum(0))  # (T, 3, bins) -> (3, bins)


class TaskClock:
    """Adds the time that a task takes, tests excluded, to the state of its run."""

    def __init__(self, state: RunState, *, new: bool = False) -> None:
        """It starts now, for a ``new`` task or one that goes on after a restart."""
        self.state = state
        self.marked = self._now()
        if new:
            state.task_seconds.append(0.0)

    def count(self) -> None:
        """Add the time since the start, or since the last count."""
        now, before = self._now(), self.marked
        if self.state.task_seconds:  # a checkpoint of an earlier version has none
            self.state.task_seconds[-1] += (now[0] - before[0]) - (now[1] - before[1])
        self.marked = now

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), self.state.seconds["evaluate"]
