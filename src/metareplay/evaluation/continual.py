"""Figures of continual learning from scores after, before and during tasks; percentages, where higher is better.

Average incremental accuracy [Rebuffi2017], forward transfer [Lopez-Paz2017], minimum accuracy and the stability gap
[De Lange2023].
"""

from collections.abc import Sequence
from typing import NamedTuple

from metareplay.evaluation.evaluate import mean


class Moment(NamedTuple):
    """All old tasks' scores at some step of a later task; step 0 is before its training."""

    task: int
    step: int
    scores: tuple[float, ...]


def average_incremental(matrix: Sequence[Sequence[float]]) -> float:
    """The mean over tasks of the mean score of all tasks so far."""
    return mean([mean(row) for row in matrix])


def forgetting(matrix: Sequence[Sequence[float]], end: Sequence[float] | None = None) -> float:
    """Mean loss of each task's score from right after it was learned to the ``end``: the last row, or after it."""
    return mean([row[task] for task, row in enumerate(matrix)]) - mean(matrix[-1] if end is None else end)


def forward_transfer(starts: Sequence[float], chance: Sequence[float]) -> float | None:
    """How much better than by chance each task but the first is answered before it is learned, on average."""
    gains = [start - guess for start, guess in zip(starts, chance, strict=False)][1:]
    return mean(gains) if gains else None


def minimum_accuracy(moments: Sequence[Moment]) -> float | None:
    """The mean over old tasks of the lowest score that each had at any time after it was learned."""
    old = max((len(moment.scores) for moment in moments), default=0)
    lowest = [min(moment.scores[task] for moment in moments if len(moment.scores) > task) for task in range(old)]
    return mean(lowest) if lowest else None


def stability_gap(moments: Sequence[Moment]) -> float | None:
    """How far old tasks fall while a task is learned, below what they had before it: the mean over tasks and old tasks.

    Each task has a moment before its first step.
    """
    gaps = []
    for later in sorted({moment.task for moment in moments}):
        of_task = [moment.scores for moment in moments if moment.task == later]
        gaps += [of_task[0][old] - min(scores[old] for scores in of_task) for old in range(len(of_task[0]))]
    return mean(gaps) if gaps else None
