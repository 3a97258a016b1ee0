"""Early stopping: training ends smoothly once the loss on held-out examples no longer falls."""

from typing import final

import torch
from torch import Tensor

BETTER = 0.005
"""Fraction by which the lowest loss so far must fall to count as an improvement."""
END = 0.3
"""The share of its steps in which a task that stops early comes to its end."""


@final
class EarlyStopping:
    """Decides from checks of the held-out loss when a task is about to end."""

    def __init__(self, every: int, patience: int, iterations: int) -> None:
        self.every, self.patience = every, patience
        self.waited, self.lowest = 0, float("inf")
        self.decay_from, self.ends = iterations, iterations
        """The steps after which the learning rate goes to zero and training ends, as far as is known."""

    def due(self, iteration: int) -> bool:
        """Whether the loss is to be checked after this many steps."""
        return iteration % self.every == 0 and iteration < self.decay_from

    def check(self, iteration: int, loss: float) -> None:
        """Take note of the held-out loss after this many steps."""
        if loss < self.lowest - BETTER * abs(self.lowest) or self.lowest == float("inf"):
            self.lowest, self.waited = loss, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            rest = max(self.every, round(iteration * END / (1 - END)))
            self.decay_from, self.ends = iteration, min(self.ends, iteration + rest)

    def tensors(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        numbers = [self.waited, self.lowest, self.decay_from, self.ends]
        return {"numbers": torch.tensor(numbers, dtype=torch.float64)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue where a checkpoint stopped."""
        waited, self.lowest, decay_from, ends = tensors["numbers"].tolist()
        self.waited, self.decay_from, self.ends = int(waited), int(decay_from), int(ends)
