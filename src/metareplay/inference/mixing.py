"""The answer as a mixture: p(y | x) = sum over tasks of p(task | x) p(y | x, task).

Only tasks that matter for an input are evaluated. The weight samples of a task count as much as the task does, so a
task that is unlikely needs fewer of them: a mixed answer costs little more than that of one task.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

COVERED = 0.99
"""The least probability that the tasks which are asked have together."""
MAJOR = 0.5
"""From this probability on, all weight samples of a task are used, as if the task were given."""
MINOR_SAMPLES = 0.2
"""The share of weight samples for less probable tasks."""
FEWEST_SAMPLES = 10


class Question(NamedTuple):
    """The inputs about which a task is asked."""

    task: int
    rows: Tensor
    """Indices of the inputs (n,)."""
    share: Tensor
    """What the task's answers count for (n,)."""
    samples: int
    """Weight samples."""


def shares(probabilities: Tensor, chosen: Tensor) -> Tensor:
    """What each task's answer counts for, from their probabilities (N, T): zero if it is not asked; (N, T).

    The chosen tasks (N,) are always asked.
    """
    ordered, order = probabilities.sort(dim=1, descending=True, stable=True)
    needed = ordered.cumsum(1) - ordered < COVERED  # those before it do not suffice; (N, T)
    asked = torch.zeros_like(needed).scatter(1, order, needed).scatter(1, chosen.unsqueeze(1), True)
    kept = probabilities * asked
    return kept / kept.sum(1, keepdim=True)


def alone(chosen: Tensor, tasks: int) -> Tensor:
    """Only the chosen tasks (N,) are asked: (N, T)."""
    return torch.nn.functional.one_hot(chosen, tasks).double()


def questions(shares_of_tasks: Tensor, chosen: Tensor, samples: int) -> Iterator[Question]:
    """Which task is asked about which inputs, with how many weight samples, by shares (N, T) and chosen tasks (N,)."""
    fewer = min(samples, max(FEWEST_SAMPLES, round(MINOR_SAMPLES * samples)))
    present = (shares_of_tasks > 0).any(0).index_fill_(0, chosen, True)  # (N, T) -> (T,): few of many tasks
    for task in present.nonzero().squeeze(1).tolist():
        share = shares_of_tasks[:, task]
        major = (share >= MAJOR) | (chosen == task)
        for asked, count in ((major, samples), ((share > 0) & ~major, fewer)):
            if len(rows := asked.nonzero().squeeze(1)):
                yield Question(task, rows, share[rows], count)


def by_label(probabilities: Tensor, labels: Tensor | None) -> Tensor:
    """Columns of the same label summed: (N, C) and each column's label (C,) -> (N, labels)."""
    if labels is None:
        return probabilities
    merged = probabilities.new_zeros(len(probabilities), int(labels.max()) + 1)
    return merged.index_add_(1, labels, probabilities)


def entropy(probabilities: Tensor) -> Tensor:
    """In nats: (N, C) -> (N,)."""
    return torch.special.entr(probabilities).sum(1)


def entropy_ratio(before: Tensor, after: Tensor, labels: Tensor) -> Tensor:
    """H(after) / H(before) over labels, by which a gain changes every part of the uncertainty (N,).

    From probabilities (N, C) and each column's label (C,). 1 where the gain changed nothing.
    """
    if after is before:
        return torch.ones(len(before), dtype=before.dtype)
    certain, now = entropy(by_label(before, labels)), entropy(by_label(after, labels))
    return torch.where(certain > 0, now / certain.clamp_min(1e-300), 1.0)
