"""Examples of a task, checked before anything is learned from them."""

import torch

from metareplay.benchmarks.base import Problem, TaskData
from metareplay.errors import DataError


def check_examples(train: TaskData, width: int, problem: Problem, shape: tuple[int, ...]) -> None:
    """Refuse examples that a model of ``width`` classes or targets and inputs of this shape cannot learn from."""
    if len(train.x) == 0:
        raise DataError("the task has no training examples; every task needs at least one")
    if tuple(train.x.shape[1:]) != shape:
        raise DataError(f"inputs have shape {tuple(train.x.shape[1:])}, but this model learned inputs of shape {shape}")
    parts = train.x.split(1000)  # the check needs as much memory as its input
    if not all(bool(torch.isfinite(part).all()) for part in parts):
        row = int((~torch.isfinite(train.x.flatten(1))).any(1).nonzero()[0])
        raise DataError(
            f"the inputs contain NaN or infinite values (first in row {row}); clean the data before learning"
        )
    if problem == "regression" and not torch.isfinite(train.y).all():
        raise DataError("the targets contain NaN or infinite values; clean the data before learning")
    if problem == "classification" and not (int(train.y.min()) >= 0 and int(train.y.max()) < width):
        raise DataError(
            f"class indices must be in 0..{width - 1}, but range from {int(train.y.min())} to {int(train.y.max())}"
        )
