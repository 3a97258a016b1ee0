"""A linear fit beside the network, for tasks so small that a network follows chance in its examples.

Ridge regression of the targets on the inputs is a number for each column and one more; no example is stored. What it
would have answered to an example that it was not fitted to has a closed form, so that its share of the answer can be
chosen by mistakes that are honest.
"""

from typing import NamedTuple

import torch
from torch import Tensor

MOST_COLUMNS = 1000
"""Wider tables have no linear fit."""
RIDGES = torch.logspace(-4, 2, 19, dtype=torch.float64)
"""Relative to the number of columns."""


class LinearFit(NamedTuple):
    """Ridge regression, with the best ridge for each target."""

    coefficients: Tensor
    """Of inputs in their own units, then the constant (F + 1, D)."""
    left_out: Tensor
    """Targets minus answers, each without its own example (n, D)."""


def linear_answers(coefficients: Tensor, x: Tensor) -> Tensor:
    """(F + 1, D), (N, ...) -> (N, D)."""
    return x.flatten(1).double() @ coefficients[:-1] + coefficients[-1]  # (N, F) -> (N, D)


def linear_fit(x: Tensor, y: Tensor) -> LinearFit:
    """To inputs (n, F) and targets (n, D)."""
    x, y = x.flatten(1).double(), y.double()
    centre, scale = x.mean(0), x.std(0, correction=0).clamp_min(1e-6)  # (F,) each
    columns = x.shape[1]
    constant = columns**0.5  # so large that it is almost free
    standard = torch.cat([(x - centre) / scale, torch.full((len(x), 1), constant, dtype=x.dtype)], 1)  # (n, F + 1)
    values, vectors = torch.linalg.eigh(standard.T @ standard)
    turned = standard @ vectors  # (n, F + 1)
    projected = turned.T @ y  # (F + 1, D)
    weights, left_out = [], []
    for ridge in RIDGES * columns:
        inverse = 1 / (values.clamp_min(0.0) + ridge)  # (F + 1,)
        weights.append(vectors @ (inverse.unsqueeze(1) * projected))  # (F + 1, D)
        free = (1 - turned.square() @ inverse).clamp_min(1e-6)  # 1 - H_ii; (n,)
        left_out.append((y - standard @ weights[-1]) / free.unsqueeze(1))  # (n, D)
    errors = torch.stack(left_out)  # (R, n, D)
    best, targets = errors.square().sum(1).argmin(0), torch.arange(y.shape[1])  # (R, D) -> (D,)
    chosen = torch.stack(weights)[best, :, targets].T  # (D, F + 1) -> (F + 1, D)
    slopes = chosen[:-1] / scale.unsqueeze(1)  # (F, D)
    intercept = constant * chosen[-1:] - centre.unsqueeze(0) @ slopes  # (1, D)
    return LinearFit(torch.cat([slopes, intercept]), errors[best, :, targets].T)


def share_of_network(of_network: Tensor, of_linear: Tensor) -> Tensor:
    """What the network counts for in answers, so that their mistakes are smallest; the rest is the linear fit's: (D,).

    From the mistakes of both on examples they did not learn from (n, D). It is one standard error more than least
    squares find: only a clear advantage counts against the network.
    """
    apart = of_linear - of_network  # (n, D)
    curvature = apart.square().sum(0).clamp_min(1e-12)  # (D,)
    best = (of_linear * apart).sum(0) / curvature  # (D,)
    left = of_linear - best.clamp(0.0, 1.0) * apart  # (n, D)
    return (best + (left.square().mean(0) / curvature).sqrt()).clamp(0.0, 1.0)
