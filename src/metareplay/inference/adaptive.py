"""Adaptive sampling: draw more weight samples only for inputs, and only from tasks, whose decision is still open.

After n of K samples the decision for an input is the task with the lowest score and that task's class. What counts is
what all K samples would decide, and the first n are among these: a difference of scores changes by about its standard
error at n times sqrt(1 - n / K). A task stays in the race while its score is within ``inference.adaptive`` such errors
of the lowest; an input is settled when one task is left whose class leads by as much. The errors are jackknife
estimates, whatever the criterion. Scores are compared on a log scale: the scores of confident tasks are means of
probabilities that differ by orders of magnitude, so their logarithms vary far more evenly.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor

from metareplay.inference.criteria.base import Contest
from metareplay.inference.predictive import WeightSamples, log_predictive

Statistic = Callable[[Tensor], Tensor]
"""A statistic of a task's predictions: log-likelihoods (S, B, C) -> (B, ...)."""

LOG_PREDICTIVE = "log predictive"
"""The statistic that determines the class; always computed."""
LOOKS = (0.05, 0.1, 0.2, 0.4, 0.7)
"""The fractions of K after which decisions are checked; the remaining samples are drawn only for those still open."""
GROUPS = 5
"""Groups of weight samples; the jackknife leaves out one at a time."""


@dataclass
class _DrawnSamples:
    """The log-likelihoods drawn so far from one task, for the inputs that still need it."""

    samples: WeightSamples
    rows: Tensor
    """Indices of these inputs (R,)."""
    log_probs: Tensor
    """(n, R, C)"""

    def draw(self, steps: Sequence[int], x: Tensor) -> None:
        """Draw more weight samples for these inputs."""
        new = [self.samples.draw_log_likelihoods(step, x[self.rows]) for step in steps]
        self.log_probs = torch.cat([self.log_probs, *new]) if self.log_probs.numel() else torch.cat(new)

    def restrict(self, still_open: Tensor) -> None:
        """Continue with these inputs only: (N,) bool."""
        keep = still_open[self.rows]
        self.rows, self.log_probs = self.rows[keep], self.log_probs[:, keep]


@torch.no_grad()
def adaptive_statistics(
    tasks: Sequence[WeightSamples],
    x: Tensor,
    statistics: Mapping[str, Statistic],
    contests: Sequence[Contest],
    patience: float,
) -> list[dict[str, Tensor]]:
    """Each task's statistics of all inputs, by name (N, ...), with as many weight samples as decisions need.

    ``statistics`` holds those of the criteria and LOG_PREDICTIVE. Without contests each task's own class is the
    decision. ``patience`` is the number of standard errors by which a decision has to be clear.
    """
    drawn = [_DrawnSamples(samples, torch.arange(len(x)), torch.empty(0)) for samples in tasks]
    results: list[dict[str, Tensor]] = [{} for _ in tasks]
    steps, total = tasks[0].steps, sum(tasks[0].steps)
    begun = 0
    for end in [*_looks(steps), len(steps)]:
        for samples, result in zip(drawn, results, strict=True):
            if len(samples.rows) or not begun:
                samples.draw(steps[begun:end], x)
                for name, statistic in statistics.items():
                    values = statistic(samples.log_probs)
                    result[name] = values if not begun else result[name].index_copy(0, samples.rows, values)
        begun = end
        if end < len(steps) and any(len(samples.rows) for samples in drawn):
            still_open = _open(drawn, results, contests, patience * sqrt(1 - sum(steps[:end]) / total))
            for samples, mask in zip(drawn, still_open, strict=True):
                samples.restrict(mask)
    return results


def _looks(steps: Sequence[int]) -> list[int]:
    """After how many of the steps decisions are checked; never before there are two groups of samples."""
    total, ends = sum(steps), range(1, len(steps))
    reached = [next((end for end in ends if sum(steps[:end]) >= share * total), None) for share in LOOKS]
    return sorted({end for end in reached if end is not None and sum(steps[:end]) > 1})


def _open(
    drawn: Sequence[_DrawnSamples],
    results: Sequence[Mapping[str, Tensor]],
    contests: Sequence[Contest],
    errors: float,
) -> Tensor:
    """Which inputs each task needs more samples for, to be clear by ``errors`` standard errors: (T, N) bool."""
    inputs = len(results[0][LOG_PREDICTIVE])
    asked = torch.stack([torch.zeros(inputs).index_fill(0, samples.rows, 1.0) for samples in drawn]) > 0  # (T, N)
    predictives = [result[LOG_PREDICTIVE] for result in results]
    classes = [log_p.argmax(-1) for log_p in predictives]  # T times (N,)
    lead = _leads(predictives, classes)  # (T, N)
    jackknife = _jackknife(drawn, results, LOG_PREDICTIVE, log_predictive)
    leads = torch.stack([_leads(log_ps, classes) for log_ps in jackknife])  # (G, T, N)
    class_open = asked & (lead <= errors * _standard_error(leads, asked))
    if not contests:
        return class_open
    still_open = torch.zeros_like(asked)
    for contest in contests:
        criterion = contest.criterion
        if criterion.score is None:  # does not depend on weight samples
            scores = _comparable(contest, [])  # (T, N)
            replicates = [scores, scores]
        else:
            scores = _comparable(contest, [result[criterion.name] for result in results])  # (T, N)
            jackknife = _jackknife(drawn, results, criterion.name, criterion.score)
            replicates = [_comparable(contest, task_scores) for task_scores in jackknife]
        best = scores.argmin(0, keepdim=True)  # (1, N)
        is_best = torch.zeros_like(asked).scatter(0, best, True)
        behind = torch.stack([values - values.gather(0, best) for values in replicates])  # (G, T, N)
        near = scores - scores.gather(0, best) <= errors * _standard_error(
            behind, asked & ~is_best if criterion.logarithmic else None
        )
        contested = (near & asked & ~is_best).any(0)  # (N,)
        still_open |= asked & ((near & contested) | (is_best & (class_open | contested)))
    return still_open


def _jackknife(
    drawn: Sequence[_DrawnSamples], results: Sequence[Mapping[str, Tensor]], name: str, statistic: Statistic
) -> Iterator[list[Tensor]]:
    """Each task's statistic of all inputs (N, ...) without one group of its weight samples, for each group in turn."""
    count = max(len(samples.log_probs) for samples in drawn if len(samples.rows))
    bounds = [count * group // min(GROUPS, count) for group in range(min(GROUPS, count) + 1)]
    for start, stop in pairwise(bounds):
        values = [result[name] for result in results]
        for task, samples in enumerate(drawn):
            if len(samples.rows):
                rest = torch.cat([samples.log_probs[:start], samples.log_probs[stop:]])  # (n - group, R, C)
                values[task] = values[task].index_copy(0, samples.rows, statistic(rest))
        yield values


def _leads(log_ps: Sequence[Tensor], classes: Sequence[Tensor]) -> Tensor:
    """How far each task's class is ahead of its runner-up, in log-probability: T times (N, C) and (N,) -> (T, N)."""
    return torch.stack([_lead(log_p, chosen) for log_p, chosen in zip(log_ps, classes, strict=True)])


def _lead(log_p: Tensor, classes: Tensor) -> Tensor:
    """How far a class is ahead of the best other class, in log-probability: (N, C) and (N,) -> (N,)."""
    column = classes.unsqueeze(1)
    return log_p.gather(1, column).squeeze(1) - log_p.scatter(1, column, -torch.inf).amax(1)


def _comparable(contest: Contest, task_scores: Sequence[Tensor]) -> Tensor:
    """The scores of all tasks, on a log scale where they are never negative: (T, N)."""
    scores = contest.scores(task_scores)
    return scores.clamp_min(torch.finfo(scores.dtype).tiny).log() if contest.criterion.logarithmic else scores


def _standard_error(replicates: Tensor, among: Tensor | None) -> Tensor:
    """The jackknife's standard error from the values without each group: (G, T, N) -> (T, N).

    A few groups say little about a single input, so half of its variance is the mean over all that are compared
    (``among``, (T, N) bool), where they are comparable.
    """
    variance = (len(replicates) - 1) * replicates.var(0, correction=0)  # (G - 1) / G sum_g (D_g - mean)^2
    if among is not None and bool(among.any()):
        variance = (variance + variance[among].mean()) / 2
    return variance.sqrt()
