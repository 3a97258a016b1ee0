"""The learning rate over a task: a half cosine, steps at given epochs, or a reduction on a plateau of the loss."""

from math import cos, pi
from typing import final

import torch
from torch import Tensor
from torch.optim import Optimizer

from metareplay.training.settings import TrainingSettings

BETTER = 1e-4
"""Fraction by which the lowest loss so far must fall to count as an improvement."""


@final
class LearningRate:
    """Sets an optimiser's learning rate at the end of each epoch, along a cosine after each step.

    Its state can be saved and restored between any two steps.
    """

    def __init__(
        self, settings: TrainingSettings, optimiser: Optimizer, steps_per_epoch: int, total_steps: int
    ) -> None:
        self.settings, self.optimiser = settings, optimiser
        self.steps_per_epoch, self.total_steps = steps_per_epoch, max(1, total_steps)  # closed forms take none
        self.ending: tuple[int, int] | None = None
        """The steps between which the learning rate goes to zero, because training stops early."""
        plateaus, early = settings.plateau_patience is not None, settings.early_stopping is not None
        self.active = any((settings.cosine, settings.rate_steps, plateaus, early, settings.warm_up))
        self.steps, self.waited, self.factor = 0, 0, 1.0
        self.lowest = float("inf")
        self.total = torch.zeros((), dtype=torch.float64)
        """Sum of the losses in this epoch."""
        if settings.warm_up:
            self._set()

    def end(self, first: int, last: int) -> None:
        """Go to zero between these steps, following a half cosine."""
        self.ending = (first, last)

    def after_step(self, loss: Tensor) -> None:
        """Called after a step with this loss."""
        if not self.active:
            return
        self.steps += 1
        if self.settings.plateau_patience is not None:
            self.total = self.total.to(loss.device) + loss.detach().double()
        if self.settings.cosine or self.ending is not None:
            self._set()
        elif self.steps % self.steps_per_epoch == 0:
            self._watch(float(self.total) / self.steps_per_epoch)
            self.total = torch.zeros((), dtype=torch.float64)
            self._set()
        elif self.steps <= self.settings.warm_up:
            self._set()

    def _watch(self, loss: float) -> None:
        """Reduce on a plateau: ``plateau_patience`` epochs without a lower mean loss."""
        if self.settings.plateau_patience is None:
            return
        if loss < self.lowest - BETTER * abs(self.lowest) or self.lowest == float("inf"):
            self.lowest, self.waited = loss, 0
            return
        self.waited += 1
        if self.waited > self.settings.plateau_patience:
            self.factor, self.waited = self.factor * self.settings.plateau_factor, 0

    def rate(self) -> float:
        """The learning rate of the next step."""
        if self.ending is not None:
            first, last = self.ending
            return self._rate_at(first) * _half_cosine((self.steps - first) / max(1, last - first))
        return self._rate_at(self.steps)

    def _rate_at(self, steps: int) -> float:
        epochs, first = steps // self.steps_per_epoch, self.settings.first_rate
        if steps < self.settings.warm_up:
            first *= (steps + 1) / (self.settings.warm_up + 1)
        if self.settings.cosine:
            return first * _half_cosine(steps / self.total_steps)
        stepped = first * ([1.0] + [factor for epoch, factor in self.settings.rate_steps if epochs >= epoch])[-1]
        return min(stepped, max(stepped * self.factor, self.settings.plateau_floor)) if self.factor < 1 else stepped

    def _set(self) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate()

    def tensors(self) -> dict[str, Tensor]:
        """For a checkpoint; empty if the learning rate never changes."""
        if not self.active:
            return {}
        numbers = torch.tensor([self.steps, self.waited, self.factor, self.lowest], dtype=torch.float64)
        return {"numbers": numbers, "total": self.total}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue where a checkpoint stopped."""
        if not self.active:
            return
        steps, waited, self.factor, self.lowest = tensors["numbers"].tolist()
        self.steps, self.waited, self.total = int(steps), int(waited), tensors["total"].clone()
        self._set()


def _half_cosine(share: float) -> float:
    """From 1 to 0 as the share done goes from 0 to 1."""
    return 0.5 * (1 + cos(pi * min(1.0, share)))
