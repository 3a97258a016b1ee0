"""Prediction intervals of answers that several tasks contribute to: the quantiles of their mixture.

A mixture of tasks that differ has two or more peaks. Its standard deviation spans them all, so that a multiple of it,
as for the answer of a single task, would contain too many targets.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor

HALVINGS = 32
"""Of the range in which a quantile lies: it is then exact to nine digits of that range."""


class Part(NamedTuple):
    """What one task contributes to some answers."""

    rows: Tensor
    """Indices of the answers (n,)."""
    share: Tensor
    """What the task counts for (n,)."""
    mean: Tensor
    """The task's own answer (n, D)."""
    half: Tensor
    """Half of its own interval (n, D)."""


def mixed_interval(parts: Sequence[Part], mean: Tensor, coverage: float) -> tuple[Tensor, Tensor]:
    """Both ends of the interval that leaves out as much above as below: (N, D) each.

    Every part is normal, as wide as its own interval says. The answer itself, ``mean`` (N, D), which a few improbable
    tasks may have moved away from all others, is always inside. The interval of a single part is its own.
    """
    normal = NormalDist().inv_cdf((1 + coverage) / 2)
    lower = _quantile(parts, mean, (1 - coverage) / 2, -normal)
    upper = _quantile(parts, mean, (1 + coverage) / 2, normal)
    return torch.minimum(lower, mean), torch.maximum(upper, mean)


def _quantile(parts: Sequence[Part], like: Tensor, probability: float, normal: float) -> Tensor:
    """Where the mixture's distribution function has this value (N, D): between the same quantiles of its parts."""
    sign = 1.0 if normal > 0 else -1.0
    low, high = torch.full_like(like, torch.inf), torch.full_like(like, -torch.inf)  # (N, D) each
    for part in parts:
        end = part.mean + sign * part.half  # (n, D)
        low[part.rows] = torch.minimum(low[part.rows], end)
        high[part.rows] = torch.maximum(high[part.rows], end)
    for _ in range(HALVINGS if bool((low < high).any()) else 0):
        middle = 0.5 * (low + high)
        below = torch.zeros_like(middle)
        for part in parts:
            deviation = (middle[part.rows] - part.mean) / part.half.clamp_min(1e-150)  # (n, D)
            below[part.rows] += part.share.unsqueeze(1) * torch.special.ndtr(abs(normal) * deviation)
        low, high = torch.where(below < probability, middle, low), torch.where(below < probability, high, middle)
    return 0.5 * (low + high)
