"""Unknown inputs of few columns: rows that are improbable under every task they may belong to.

In few dimensions a density says all there is to say about a row: entropies only mark the boundary between classes,
which is an ordinary place to be. So each task has a threshold for -log p(x), in nats, and a row is compared with the
thresholds of all tasks, weighted by how probable each is by the densities. Where tasks overlap, a row at the edge of
one is often an ordinary row of another, so a task's threshold is a little lower for rows of unknown task.
"""

from collections.abc import Mapping, Sequence
from math import log

import torch
from torch import Tensor

from metareplay.inference.statistics.unknown import threshold

NATS = "unknown.nats"
"""Under which a task's two thresholds are stored (2,): with the task given, and among all tasks."""
UNIT = 3.0
"""In nats for the root of the number of columns: how far beyond the threshold a strangeness of 2 is."""
MOST = 1000.0
"""The largest strangeness."""
SMALLEST_SHARE = 1e-6
FEW_ROWS = 100
"""With as many rows, their single largest costs count as much as the shape that they usually have."""
TAIL = 0.2
"""The share of rows by whose costs a threshold is found if there are few."""
MOST_LOWERED = 4
"""How many times as many of a task's own rows may be beyond its threshold among all tasks."""


def nats(costs: Tensor, earlier: Sequence[Mapping[str, Tensor]], false_rejections: float) -> dict[str, Tensor]:
    """From -log p of unseen rows of the last task (T, N), the two thresholds of this task."""
    certain = costs.shape[1] / (costs.shape[1] + FEW_ROWS)
    own = (1 - certain) * _exponential(costs[-1], false_rejections) + certain * threshold(costs[-1], false_rejections)
    known = [index for index, task in enumerate(earlier) if NATS in task]
    among = threshold(_needed(costs[[*known, -1]], _among([earlier[index] for index in known])), false_rejections)
    least = threshold(costs[-1], min(TAIL, MOST_LOWERED * false_rejections))
    lowered = own + certain * (torch.maximum(among, least) - own).clamp_max(0.0)
    return {NATS: torch.stack([own, lowered])}


def _exponential(costs: Tensor, false_rejections: float) -> Tensor:
    """A threshold that varies less with a few rows (N,): as if the largest costs were distributed exponentially."""
    tail = max(TAIL, false_rejections)
    start = threshold(costs, tail)
    excess = (costs - start).clamp_min(0.0).sum() / max(int((costs > start).sum()), 1)
    return start + excess * log(tail / false_rejections)  # P(c > start + e) = tail exp(-e / excess)


def _needed(costs: Tensor, others: Tensor) -> Tensor:
    """The threshold of the last task at which a row would be at the edge: (T, N), (T - 1,) -> (N,)."""
    shares = (-costs).softmax(0)
    rest = (shares[:-1] * (costs[:-1] - others.unsqueeze(1))).sum(0)  # of the other tasks, (N,)
    return costs[-1] + rest / shares[-1].clamp_min(SMALLEST_SHARE)


def _among(stored: Sequence[Mapping[str, Tensor]]) -> Tensor:
    """Thresholds among all tasks (T,)."""
    return torch.stack([task[NATS][1] for task in stored]) if stored else torch.zeros(0, dtype=torch.float64)


def strange_among(costs: Tensor, stored: Sequence[Mapping[str, Tensor]], features: int) -> Tensor:
    """How strange rows are to the tasks whose thresholds are in nats: -log p (T, N) -> (N,)."""
    known = [index for index, task in enumerate(stored) if NATS in task]
    few = costs[known]
    beyond = few - _among([stored[index] for index in known]).unsqueeze(1)  # (T, N)
    return _strangeness(((-few).softmax(0) * beyond).sum(0), features)


def strange_to(costs: Tensor, stored: Mapping[str, Tensor], features: int) -> Tensor:
    """How strange rows are to one task: -log p (N,) -> (N,)."""
    return _strangeness(costs - stored[NATS][0], features)


def _strangeness(beyond: Tensor, features: int) -> Tensor:
    """1 at the threshold, above it in proportion to the nats beyond, below it ever smaller but never negative."""
    units = beyond / (UNIT * features**0.5)
    return torch.where(units < 0, units.clamp_max(0.0).exp(), 1.0 + units).clamp_max(MOST)


def widened_nats(old: Tensor, unseen: Tensor, share: float, false_rejections: float) -> dict[str, Tensor]:
    """Thresholds (2,) of a task with new rows, which are this share of all: from -log p of the new rows (N,).

    The density of all is at least (1 - share) times the old one, so what was known stays so.
    """
    kept = old - torch.log1p(torch.tensor(-min(share, 0.999), dtype=torch.float64))
    new = threshold(unseen, false_rejections)
    return {NATS: torch.maximum(kept, new - (old[0] - old[1]))}
