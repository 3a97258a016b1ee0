"""Examples of a task that training does not use: they show how the model does on inputs it has not seen."""

import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import TaskData

FEWEST = 200
"""A smaller task needs all its examples for training."""
MOST = 1000
"""More would not make the calibration better."""


def split(data: TaskData, share: float, *, classes: bool, generator: Generator) -> tuple[TaskData, TaskData]:
    """The examples to train on and those held out, the same share of every class; their order is kept."""
    count = len(data.x)
    share = min(share, MOST / max(count, 1))
    held_out = torch.zeros(count, dtype=torch.bool)
    if share > 0 and count >= FEWEST:
        order = torch.randperm(count, generator=generator)
        for rows in _groups(data.y[order], classes):
            held_out[order[rows[: int(share * len(rows))]]] = True
    return TaskData(data.x[~held_out], data.y[~held_out]), TaskData(data.x[held_out], data.y[held_out])


def _groups(labels: Tensor, classes: bool) -> list[Tensor]:
    """The rows of each class; all rows for regression."""
    if not classes:
        return [torch.arange(len(labels))]
    return [(labels == label).nonzero().squeeze(1) for label in labels.unique()]


def joined(first: TaskData, second: TaskData) -> TaskData:
    """The examples of both."""
    return TaskData(torch.cat([first.x, second.x]), torch.cat([first.y, second.y.to(first.y.dtype)]))
