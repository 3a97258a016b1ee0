"""Many tasks: the few that are compared pair by pair, for an input and when a task ends.

All pairs of tasks grow with the square of their number. So a first score, of what needs no task's own network, ranks
all tasks; the exact comparison in pairs is among the best of them, and its cost no longer depends on the others.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from metareplay.inference.statistics.combine import Combination, against_others
from metareplay.inference.statistics.evidence import OF_OUTPUTS, Stored, TaskEvidence

AT_ONCE = 2**21
"""Comparisons that are held at once."""
HIGHEST = 1e300
"""What an infinite cost counts for, so that differences stay numbers."""


def first_scores(combination: Combination, terms: Mapping[str, Tensor]) -> Tensor:
    """Log-odds of an ideal task against each: one with the lowest cost of every kind but those of outputs; (T, N)."""
    total = torch.zeros_like(next(iter(terms.values()))[0])  # (T, N)
    for index, name in enumerate(combination.names):
        if name in OF_OUTPUTS:
            continue
        costs = terms[name]  # (K, T, N), NaN in networks that do not know a task
        known = ~costs.isnan()
        least = costs.nan_to_num(torch.inf, torch.inf).amin(1, keepdim=True)  # (K, 1, N)
        gaps = (costs - least).nan_to_num(0.0, HIGHEST)
        mean = gaps.sum(0) / known.sum(0).clamp_min(1)  # (K, T, N) -> (T, N)
        total += combination.weights[index] * combination.compressed(mean / combination.spread[:, index, None])
    return total


def short_list(first: Tensor, most: int) -> Tensor:
    """The tasks with the lowest first scores for each input, in their own order: (T, N) -> (M, N)."""
    order = first.argsort(dim=0, stable=True)  # of equal ones the earlier tasks
    return order[:most].sort(dim=0).values


def listed_scores(combination: Combination, evidence: TaskEvidence) -> Tensor:
    """-sum over the short-listed tasks of log p(this one rather than that): (T, N), the lowest wins.

    Among short-listed tasks log p is exact. That of another task follows from the difference of first scores
    [Bradley and Terry 1952], and no such task comes before one that was listed.
    """
    assert evidence.listed is not None
    assert evidence.first is not None
    terms, count = evidence.terms(), evidence.inputs.shape[1]
    size = max(1, AT_ONCE // (evidence.num_tasks * len(evidence.listed)))
    parts = [
        _listed(
            combination,
            {name: values[..., start : start + size] for name, values in terms.items()},
            evidence.first[:, start : start + size],
            evidence.listed[:, start : start + size],
        )
        for start in range(0, count, size)
    ]
    return torch.cat(parts, dim=1) if parts else evidence.inputs[:, :0]


def _listed(combination: Combination, terms: Mapping[str, Tensor], first: Tensor, listed: Tensor) -> Tensor:
    """Of the inputs of a part (T, B); first scores (T, B), short-listed tasks (M, B)."""
    index = listed.unsqueeze(0)  # (1, M, B)
    few = {name: values.gather(1, index.expand(len(values), -1, -1)) for name, values in terms.items()}  # (K, M, B)
    among = combination.lost(few, listed)  # (M, B)
    behind = first.unsqueeze(1) - first.gather(0, listed).unsqueeze(0)  # (T, M, B)
    others = F.softplus(behind).sum(1)  # -log p; (T, M, B) -> (T, B)
    worst = among.amax(0, keepdim=True)  # (1, B)
    return torch.maximum(others, worst).scatter(0, listed, among)


def pairwise(pooled: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """By how many tasks each is beaten, and its mean lead over all, from the costs in some layers (K, T, N): (T, N).

    Between tasks that all networks know, what ``differences`` finds is the difference of their own mean costs: these
    are sorted. Only the first tasks, which later networks do not know, are compared with all others.
    """
    known = [~costs[:, :, 0].isnan() for costs in pooled]  # (K, T) each
    everywhere = torch.stack([(of == of.any(1, keepdim=True)).all(0) for of in known]).all(0)  # (T,)
    mean = torch.stack([costs.nanmean(0) for costs in pooled]).mean(0)  # (L, T, N) -> (T, N)
    whole = everywhere.nonzero().squeeze(1)
    values = mean[whole].T.contiguous()  # (N, W)
    lost, lead = torch.zeros_like(mean), torch.zeros_like(mean)
    lost[whole] = torch.searchsorted(values.sort(1).values, values).T.double()  # those with lower costs; (W, N)
    lead[whole] = (values.sum(1, keepdim=True) - len(whole) * values).T  # (W, N)
    for task in (~everywhere).nonzero().squeeze(1).tolist():
        wins = torch.stack([against_others(costs, task).nan_to_num(0.0) for costs in pooled]).mean(0)  # (T, N)
        lost[task], lead[task] = (wins < 0).double().sum(0), wins.sum(0)
        lost[whole] += (wins[whole] > 0).double()
        lead[whole] -= wins[whole]
    return lost, lead / len(mean)


def rivals(stored: Sequence[Stored], new: Stored, most: int, *, networks: int) -> list[int]:
    """The tasks, in order, with which a new one is compared when it ends: all, or at most this many.

    These are the first ones, in whose networks all are described, and those whose inputs are nearest to its own.
    """
    if len(stored) <= max(most, networks):
        return list(range(len(stored)))
    nearest = distances(stored[networks:], new).argsort(stable=True)[: max(1, most - networks)]
    return [*range(networks), *(nearest.sort().values + networks).tolist()]


def distances(stored: Sequence[Stored], new: Stored) -> Tensor:
    """Of the Gaussians of a new task's inputs to the nearest ones of each other task, on average: (T,)."""
    means, share = new["inputs.mean"], new["inputs.share"].double()  # (G, F), (G,)
    sizes = torch.tensor([len(task["inputs.mean"]) for task in stored])
    owner = torch.repeat_interleave(torch.arange(len(stored)), sizes)  # (G of all,)
    nearest = torch.full((len(means), len(stored)), torch.inf)  # (G, T)
    at_once = max(1, AT_ONCE // (int(sizes.max()) * means.shape[1]))
    for start in range(0, len(stored), at_once):
        part = torch.cat([task["inputs.mean"] for task in stored[start : start + at_once]])
        of_part = owner[int(sizes[:start].sum()) :][: len(part)]
        index = of_part.unsqueeze(0).expand(len(means), -1)
        nearest.scatter_reduce_(1, index, torch.cdist(means, part), "amin")
    return share @ nearest.double()  # (G,), (G, T) -> (T,)
