"""How certain the odds between tasks may be: a temperature, from inputs of the newest task, and drawn ones of others.

The newest of drifting tasks is easier to tell apart than those in between, and the inputs of it that are held out may
be few. There, inputs drawn from the densities of all tasks show how certain the odds may be.
"""

from collections.abc import Mapping
from math import log
from typing import NamedTuple

import torch
from torch import Tensor

TEMPERATURES = torch.logspace(-1.5, 1.0, 51, dtype=torch.float64)


def losses_of(scores: Tensor, task: int) -> Tensor:
    """How improbable each temperature makes the true task of all inputs together: (T, N) -> (temperatures,)."""
    return torch.stack([-(-factor * scores).log_softmax(0)[task].sum() for factor in TEMPERATURES])


def _best(losses: Tensor) -> float:
    """The temperature with the lowest loss.

    Where tasks are told apart at any temperature, all high ones are as good; that says nothing about later tasks, which
    may overlap. So temperatures above 1 are less probable beforehand.
    """
    above = TEMPERATURES.log().clamp_min(0.0)
    return float(TEMPERATURES[int((losses + 0.5 * above.square()).argmin())])


def temperature_of_all(scores: Tensor, of_drawn: Mapping[int, Tensor]) -> float:
    """The same for inputs of all tasks: those of the newest (T, N), and those drawn from others (T, n), by task.

    Every task counts as much as any other, and all together as much as the N inputs.
    """
    tasks, count = scores.shape
    return _best(losses_of(scores, tasks - 1) / tasks + count * (tasks - 1) / tasks * _mean_losses(of_drawn))


class History(NamedTuple):
    """How improbable each temperature made the true task of inputs that were held out, task after task.

    The newest task may be easier or harder to tell apart than others, and little of it may be held out.
    """

    losses: Tensor
    """Mean over the tasks of an input's loss (temperatures,)."""
    tasks: int = 0
    """When so many of them were the newest."""

    @classmethod
    def empty(cls) -> "History":
        """Of no task."""
        return cls(torch.zeros_like(TEMPERATURES))

    def after(self, scores: Tensor, of_drawn: Mapping[int, Tensor]) -> "History":
        """With the newest task's inputs (T, N) and, if there are any, those drawn from others (T, n), by task."""
        losses, tasks = losses_of(scores, len(scores) - 1) / scores.shape[1], self.tasks + 1
        if of_drawn:
            losses = (losses + _mean_losses(of_drawn)) / 2
        return History(self.losses + (losses - self.losses) / tasks, tasks)

    def temperature(self, count: int) -> float:
        """The best one, if so many inputs were seen."""
        return _best(count * self.losses)


def _mean_losses(of_drawn: Mapping[int, Tensor]) -> Tensor:
    """Of an input drawn from any of the tasks: (T, n) by task -> (temperatures,)."""
    total = torch.stack([losses_of(part, task) for task, part in of_drawn.items()]).sum(0)
    return total / sum(part.shape[1] for part in of_drawn.values())


def learned_temperature(scores: Tensor, task: int, last: float, most: float = torch.inf) -> float:
    """The factor of the scores (T, N) that makes the true task most probable, half-way in log from the last one.

    It is at most so much where other tasks are harder to tell apart.
    """
    best = min(_best(losses_of(scores, task)), most)
    return best if task == 1 else (best * last) ** 0.5


def adjusted_temperature(scores: Tensor, task: int, last: float) -> float:
    """The same, near the last one: among some of many tasks, a task is often told apart at any temperature."""
    losses = torch.stack([-(-factor * scores).log_softmax(0)[task].mean() for factor in TEMPERATURES])
    changes = TEMPERATURES.log() - log(last)
    return float(TEMPERATURES[int((losses + 0.5 * changes.square()).argmin())])
