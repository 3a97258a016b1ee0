"""What would have been predicted for an example that was not learned from, for tasks too small to hold any out.

A network that has seen all examples cannot tell. Kernel ridge regression on the same inputs can, in closed form: the
prediction without example i follows from the fit with it. Its mistakes stand for those that the network makes on new
inputs.
"""

from collections.abc import Iterator
from math import log
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

MOST = 300
"""Examples that are looked at: eigenvectors of a matrix of that size take milliseconds."""
WIDTHS = (0.5, 1.0, 2.0)
"""Of Gaussian kernels, relative to the median distance of inputs."""
RIDGES = torch.logspace(-4, 1, 16, dtype=torch.float64)
"""Relative to the mean of a kernel's diagonal."""

ALIKE = 1.3
"""Fits are as close as another if their residuals are larger or smaller by at most this factor."""


class Fit(NamedTuple):
    """Kernel ridge regression with one kernel and one ridge."""

    residuals: Tensor
    """Of the examples it was fitted to (n, D)."""
    left_out: Tensor
    """Of each example, when it is left out (n, D)."""


def fits(x: Tensor, y: Tensor) -> Iterator[list[Fit]]:
    """For inputs (n, F) and targets (n, D): by kernel, the fits with all ridges."""
    y = y.double()
    for kernel in _kernels(_standardised(x.flatten(1).double())):
        values, vectors = torch.linalg.eigh(kernel + kernel.diagonal().mean())  # the constant is a free intercept
        values, projected, squares = values.clamp_min(0.0), vectors.T @ y, vectors.square()
        of_kernel = []
        for ridge in RIDGES * kernel.diagonal().mean():
            kept = ridge / (values + ridge)  # (n,)
            residuals = vectors @ (kept.unsqueeze(1) * projected)  # (I - H) y; (n, D)
            free = (squares @ kept).clamp_min(1e-6)  # 1 - H_ii; (n,)
            of_kernel.append(Fit(residuals, residuals / free.unsqueeze(1)))
        yield of_kernel


def answers_when_left_out(x: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The class that the best of the fits gives each example without it: (n, F), (n,) -> (n,)."""
    targets = F.one_hot(labels, classes).double()  # (n, C)
    best = min(
        (fit for of_kernel in fits(x, targets) for fit in of_kernel), key=lambda fit: float(fit.left_out.square().sum())
    )
    return (targets - best.left_out).argmax(1)


def right_when_left_out(x: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Whether each example's class is found without it, by the best of the fits: (n, F), (n,) -> (n,) bool."""
    return answers_when_left_out(x, labels, classes) == labels


def residuals_when_left_out(x: Tensor, y: Tensor, residuals: Tensor) -> Tensor:
    """Residuals of examples that were left out, by fits as close as that of the network whose residuals are given.

    A network that follows its examples more closely than the best kernel errs more on new ones, and so do these fits.
    Which of them it resembles is not known: these are their mean residuals, as large as theirs are on average.
    (n, F), (n, D), (n, D) -> (n, D)
    """
    size = residuals.double().square().mean().clamp_min(1e-12).sqrt()

    def unlike(fit: Fit) -> float:
        return float((fit.residuals.square().mean().clamp_min(1e-12).sqrt() / size).log().abs())

    closest = [min(of_kernel, key=unlike) for of_kernel in fits(x, y)]
    alike = [fit for fit in closest if unlike(fit) <= log(ALIKE)] or [min(closest, key=unlike)]
    left_out = torch.stack([fit.left_out for fit in alike])  # (K, n, D)
    mean, squares = left_out.mean(0), left_out.square().mean((0, 1))  # (n, D), (D,)
    return mean * (squares / mean.square().mean(0).clamp_min(1e-12)).sqrt()


def _standardised(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / x.std(0, correction=0).clamp_min(1e-6)


def _kernels(x: Tensor) -> Iterator[Tensor]:
    """Gaussian kernels of several widths, and the linear one: (n, n) each."""
    yield x @ x.T + 1e-9 * torch.eye(len(x), dtype=x.dtype)
    squared = torch.cdist(x, x).square()
    typical = squared[~torch.eye(len(x), dtype=torch.bool)].median() if len(x) > 1 else torch.tensor(1.0)
    for width in WIDTHS:
        yield (-0.5 * squared / (width**2 * typical.clamp_min(1e-9))).exp()
