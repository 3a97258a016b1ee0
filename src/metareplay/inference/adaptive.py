"""Adaptive sampling: draw more weight samples only for the inputs, and of them only for the tasks, whose decision is still open.

After n of K samples the decision of an input is the task with the lowest score and that task's class. What counts is what all K samples
would decide, and the first n are among these: a difference of scores moves on by about its standard error at n times sqrt(1 - n / K).
A task stays in the race while its score is within ``inference.adaptive`` such errors of the lowest; an input is settled when one task is
left whose class is as far ahead. The errors are found by the jackknife, whatever the criterion. Scores are compared by their logarithms:
the scores of confident tasks are means of probabilities that differ by orders of magnitude, so their logarithms vary far more evenly.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor

from metareplay.inference.criteria.base import Contest
from metareplay.inference.predictive import WeightSamples, log_likelihoods, log_predictive

Statistic = Callable[[Tensor], Tensor]
"""What is asked of a task: log-likelihoods (S, B, C) -> (B, ...)."""

LOG_PREDICTIVE = "log predictive"
"""The statistic that names the class; always asked for."""
LOOKS = (0.05, 0.1, 0.2, 0.4, 0.7)
"""The shares of K after which decisions are looked at; the last samples are drawn for what is open then."""
GROUPS = 5
"""Groups of weight samples of which the jackknife leaves out one at a time."""


@dataclass
class _Seen:
    """What one task has said so far about the inputs that still need it."""

    samples: WeightSamples
    rows: Tensor
    """Which inputs these are (R,)."""
    log_probs: Tensor
    """(n, R, C)"""

    def more(self, steps: Sequence[int], x: Tensor) -> None:
        new = [log_likelihoods(self.samples.draw(step, x[self.rows])) for step in steps]
        self.log_probs = torch.cat([self.log_probs, *new]) if self.log_probs.numel() else torch.cat(new)

    def only(self, still_open: Tensor) -> None:
        """Go on with these inputs alone: (N,) bool."""
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
    """What each task says of all inputs, by name (N, ...), from as many weight samples as the criteria's decisions need.

    ``statistics`` hold those of the criteria and LOG_PREDICTIVE. Without contests each task's own class is the decision. ``patience`` is
    the number of standard errors by which a decision has to be clear.
    """
    seen = [_Seen(samples, torch.arange(len(x)), torch.empty(0)) for samples in tasks]
    found: list[dict[str, Tensor]] = [{} for _ in tasks]
    steps, total = tasks[0].steps, sum(tasks[0].steps)
    begun = 0
    for end in [*_looks(steps), len(steps)]:
        for task, one in enumerate(seen):
            if len(one.rows) or not begun:
                one.more(steps[begun:end], x)
                for name, statistic in statistics.items():
                    values = statistic(one.log_probs)
                    found[task][name] = values if not begun else found[task][name].index_copy(0, one.rows, values)
        begun = end
        if end < len(steps) and any(len(one.rows) for one in seen):
            still = _open(seen, found, contests, patience * sqrt(1 - sum(steps[:end]) / total))
            for one, mask in zip(seen, still, strict=True):
                one.only(mask)
    return found


def _looks(steps: Sequence[int]) -> list[int]:
    """After how many of the steps decisions are looked at; never before there are two groups of samples."""
    total, ends = sum(steps), range(1, len(steps))
    reached = [next((end for end in ends if sum(steps[:end]) >= share * total), None) for share in LOOKS]
    return sorted({end for end in reached if end is not None and sum(steps[:end]) > 1})


def _open(
    seen: Sequence[_Seen],
    found: Sequence[Mapping[str, Tensor]],
    contests: Sequence[Contest],
    errors: float,
) -> Tensor:
    """Which tasks have to say more about which inputs, to be clear by so many standard errors: (T, N) bool."""
    asked = (
        torch.stack([torch.zeros(len(found[0][LOG_PREDICTIVE])).index_fill(0, one.rows, 1.0) for one in seen]) > 0
    )  # (T, N)
    classes = [said[LOG_PREDICTIVE].argmax(-1) for said in found]  # T times (N,)
    lead = torch.stack([_lead(said[LOG_PREDICTIVE], own) for said, own in zip(found, classes, strict=True)])  # (T, N)
    leads = torch.stack(
        [
            torch.stack([_lead(said, own) for said, own in zip(each, classes, strict=True)])
            for each in _left_out(seen, found, LOG_PREDICTIVE, log_predictive)
        ]
    )  # (G, T, N)
    unsure = asked & (lead <= errors * _standard_error(leads, asked))
    if not contests:
        return unsure
    still_open = torch.zeros_like(asked)
    for contest in contests:
        criterion = contest.criterion
        if criterion.score is None:  # decided by other things than weight samples
            scores = _comparable(contest, [])  # (T, N)
            each = [scores, scores]
        else:
            scores = _comparable(contest, [said[criterion.name] for said in found])  # (T, N)
            each = [_comparable(contest, said) for said in _left_out(seen, found, criterion.name, criterion.score)]
        best = scores.argmin(0, keepdim=True)  # (1, N)
        is_best = torch.zeros_like(asked).scatter(0, best, True)
        behind = torch.stack([values - values.gather(0, best) for values in each])  # (G, T, N)
        near = scores - scores.gather(0, best) <= errors * _standard_error(
            behind, asked & ~is_best if criterion.logarithmic else None
        )
        contested = (near & asked & ~is_best).any(0)  # (N,)
        still_open |= asked & ((near & contested) | (is_best & (unsure | contested)))
    return still_open


def _left_out(
    seen: Sequence[_Seen], found: Sequence[Mapping[str, Tensor]], name: str, statistic: Statistic
) -> Iterator[list[Tensor]]:
    """What each task says of all inputs (N, ...) without one group of its weight samples, for one group after another."""
    samples = max(len(one.log_probs) for one in seen if len(one.rows))
    bounds = [samples * group // min(GROUPS, samples) for group in range(min(GROUPS, samples) + 1)]
    for start, stop in pairwise(bounds):
        values = [said[name] for said in found]
        for task, one in enumerate(seen):
            if len(one.rows):
                rest = torch.cat([one.log_probs[:start], one.log_probs[stop:]])  # (n - group, R, C)
                values[task] = values[task].index_copy(0, one.rows, statistic(rest))
        yield values


def _lead(log_p: Tensor, classes: Tensor) -> Tensor:
    """How far a class is ahead of the best other one, in log-probability: (N, C) and (N,) -> (N,)."""
    own = classes.unsqueeze(1)
    return log_p.gather(1, own).squeeze(1) - log_p.scatter(1, own, -torch.inf).amax(1)


def _comparable(contest: Contest, said: Sequence[Tensor]) -> Tensor:
    """The scores of all tasks, by their logarithms where they are never negative: (T, N)."""
    scores = contest.scores(said)
    return scores.clamp_min(torch.finfo(scores.dtype).tiny).log() if contest.criterion.logarithmic else scores


def _standard_error(each: Tensor, among: Tensor | None) -> Tensor:
    """The jackknife's standard error from what is left without each group: (G, T, N) -> (T, N).

    A few groups say little about one input, so half of its variance is the mean over all that are compared (``among``, (T, N) bool),
    where they are comparable.
    """
    variance = (len(each) - 1) * each.var(0, correction=0)  # (G - 1) / G sum_g (D_g - mean)^2
    if among is not None and bool(among.any()):
        variance = (variance + variance[among].mean()) / 2
    return variance.sqrt()
