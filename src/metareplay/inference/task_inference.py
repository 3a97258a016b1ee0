"""Choose the task: the lowest score for each input, or the lowest mean score for a batch from one task."""

from itertools import pairwise

import torch
from torch import Tensor

from metareplay.errors import ConfigError


def choose_tasks(scores: Tensor, batch_wise: int | None = None) -> Tensor:
    """Scores of every task (T, B) -> the task of each input (B,), with ``batch_wise`` one per batch of that size."""
    return infer_tasks(scores) if batch_wise is None else infer_tasks_batch_wise(scores, batch_wise)


def infer_tasks(scores: Tensor) -> Tensor:
    """Scores of every task (T, B) -> the task of each input (B,)."""
    return scores.argmin(0)


def infer_tasks_batch_wise(scores: Tensor, size: int) -> Tensor:
    """One task per batch of ``size`` inputs that are known to belong together: (T, B) -> (B,).

    Uncertainty is averaged over the batch [Henning2021, sec. Task inference, BW]. A remainder of less than half a batch
    joins the batch before it.
    """
    if not isinstance(size, int) or size < 1:
        raise ConfigError(
            f"batch_wise={size} is not a batch size; give the number of successive inputs per task, a positive integer"
        )
    total = scores.shape[1]
    batches = max(1, (total + size // 2) // size) if total >= size else 1
    bounds = [*(size * index for index in range(batches)), total]
    chosen = torch.empty(total, dtype=torch.int64)
    for start, stop in pairwise(bounds):
        chosen[start:stop] = scores[:, start:stop].mean(1).argmin()  # (T, size) -> (T,) -> ()
    return chosen
