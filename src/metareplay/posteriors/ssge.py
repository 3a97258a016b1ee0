"""The spectral Stein gradient estimator [Shi2018; Henning2021, sm:sec:ssge]: grad log q(w) from samples of q alone."""

from collections.abc import Iterator
from typing import Any, TypedDict, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from metareplay.posteriors.products import distances_from

SMALLEST_EIGENVALUE = 1e-4
"""Eigenvalues below this share of the largest are dropped: their eigenvectors are rounding errors and samples' noise."""
BLOCK = 16384
"""Columns of weight samples that are worked on at once."""
JITTER = 1e-10
"""Added to the Gram matrix's diagonal, so that a singular one has an eigendecomposition."""


SMALLEST_DEVIATION = 0.01
"""Standard deviations of a Gaussian fit are at least this share of their root mean square."""


class Choices(TypedDict):
    """What is free in the estimate."""

    width: float | None
    """Of the RBF kernel; None: the median distance of the samples."""
    eigenfunctions: int | None
    ratio: float | None


def ssge_score(
    samples: Tensor,
    at: Tensor,
    *,
    width: float | None = None,
    eigenfunctions: int | None = None,
    ratio: float | None = None,
    around_gaussian: bool = False,
) -> Tensor:
    """Estimate grad_w log q(w) at the points ``at`` (n, W) from samples (S, W) of q: (n, W), without gradients.

    The RBF kernel has the given width, or the median distance of the samples. The J largest eigenvalues are used: at most
    ``eigenfunctions`` of them, and no more than it takes for their sum to exceed the share ``ratio`` of the sum of all.

    It is linear in the samples, with coefficients that depend on their inner products alone: so the weights are passed over twice.

    The estimate vanishes a few widths from the samples. With ``around_gaussian`` only what the score has beyond that of the Gaussian
    with the samples' means and variances is estimated, and this Gaussian remains where no sample is near.
    """
    points, size, own = at.detach(), len(samples), at is samples
    samples = points if own else samples.detach()
    squares = squared_distances(samples, None if own else points)  # of all samples and points; (S + n, S + n), or (S, S)
    if not squares.isfinite().all():
        return torch.full_like(points, float("nan"))  # whoever uses it reports the divergence
    near, rest = score_coefficients(squares, size, len(points), width=width, eigenfunctions=eigenfunctions, ratio=ratio)  # (n, S) each
    rest = rest - rest.mean(1, keepdim=True) + 1 / size  # times w: of centred samples, and their mean
    floor = SMALLEST_DEVIATION**2 * _mean_variance(squares[:size, :size], at.shape[1])
    score = torch.empty_like(points)
    for part in _blocks(at.shape[1]):
        centred = _centred(samples[:, part], None if own else points[:, part], at.shape[1])  # (S + n, block)
        w, here = centred[:size], centred[-len(points) :]
        found = near.to(w.dtype) @ w  # eq. sm:eq:ssge, finite form; (n, block)
        if around_gaussian:  # by Stein's identity for log q - log r: minus E[phi_j grad log r], and grad log r itself
            found += (rest.to(w.dtype) @ w - here) * _precisions(w, floor)
        score[:, part] = found
    return score


def score_coefficients(
    squares: Tensor, size: int, count: int, *, width: float | None = None, eigenfunctions: int | None = None, ratio: float | None = None
) -> tuple[Tensor, Tensor]:
    """Two combinations of S samples for each of n points, (n, S): the score there, and functions' projections on the eigenfunctions.

    ``squares`` are squared distances of all: the samples come first and the points last, and may be the same.
    """
    variance = (median_distance(squares[:size, :size]) if width is None else width) ** 2
    kernel = torch.exp(-0.5 * squares[:, :size] / variance)
    gram, kernel = kernel[:size], kernel[-count:]  # k(w^i, w^j), k(w, w^j); (S, S), (n, S)
    eigenvalues, eigenvectors = torch.linalg.eigh(gram + JITTER * torch.eye(size, dtype=gram.dtype, device=gram.device))  # K u = lambda u
    eigenvalues, eigenvectors = eigenvalues.flip(0), eigenvectors.flip(1)  # the largest first
    kept = number_of_eigenfunctions(eigenvalues, eigenfunctions, ratio)
    eigenvalues, eigenvectors = eigenvalues[:kept], eigenvectors[:, :kept]  # (J,), (S, J)
    slopes = (torch.diag(gram.sum(0)) - gram) / variance  # times w: sum_n grad_{w^n} k(w^n, w^s), for each s; (S, S)
    root = size**0.5
    gamma = -(eigenvectors / (root * eigenvalues)).T @ slopes  # times w: coefficients gamma_ij of sm:sec:ssge; (J, S)
    phi = kernel @ (eigenvectors * (root / eigenvalues))  # eigenfunctions by the Nystroem method; (n, J)
    return phi @ gamma, phi @ eigenvectors.T / root


def _blocks(size: int) -> Iterator[slice]:
    """Columns that fit in a processor's cache."""
    return (slice(start, start + BLOCK) for start in range(0, size, BLOCK))


def _centred(samples: Tensor, at: Tensor | None, total: int) -> Tensor:
    """Samples (S, W) above points (n, W), less the mean of the samples; in double precision if one block is all there is."""
    rows = samples if at is None else torch.cat([samples, at])
    rows = rows.double() if total <= BLOCK else rows
    return rows - rows[: len(samples)].mean(0)  # (S + n, W)


def _mean_variance(squares: Tensor, size: int) -> float:
    """Mean over their elements of the variances of S samples, from their squared distances (S, S)."""
    return float(squares.sum()) / (2 * len(squares) * max(1, len(squares) - 1) * size)


def _precisions(centred: Tensor, floor: float) -> Tensor:
    """One over the variances of samples (S, W) whose mean is zero, at least ``floor``; zero where that is zero: (W,)."""
    if floor == 0:
        return centred.new_zeros(centred.shape[1])
    return 1 / (centred.square().sum(0) / max(1, len(centred) - 1)).clamp_min(floor)  # (S, W) -> (W,)


def with_score(score: Tensor, weights: Tensor) -> Tensor:
    """A scalar with value 0 and the gradient of E log q, given the score (n, W) at weight samples (n, W)."""
    return cast(Tensor, _WithSlope.apply(weights, score))  # last line of eq. sm:eq:elbo:grad; (n, W) -> ()


class _WithSlope(torch.autograd.Function):
    """Zero, with the mean of given slopes (n, W) over the rows."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, slopes: Tensor) -> Tensor:
        ctx.save_for_backward(slopes)
        return 0 * slopes[0, 0].to(weights.dtype)  # not a number where the slopes are none

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        (slopes,) = ctx.saved_tensors
        return slopes * (slope / len(slopes)), None


def squared_distances(samples: Tensor, at: Tensor | None = None) -> Tensor:
    """|a_i - a_j|^2 of samples (S, W), and of them and other points (n, W): (S + n, S + n), in double precision."""
    inner: Tensor | float = 0.0
    for part in _blocks(samples.shape[1]):
        rows = _centred(samples[:, part], None if at is None else at[:, part], samples.shape[1])  # (S + n, block)
        inner = inner + (rows @ rows.T).double()
    return distances_from(cast(Tensor, inner)).clamp_min(0.0)


def median_distance(squares: Tensor) -> float:
    """The median of the distances between different samples; 1 where all are equal or there is only one."""
    rows, columns = torch.triu_indices(len(squares), len(squares), 1)
    distances = squares[rows, columns].sqrt()  # (S, S) -> (S (S - 1) / 2,)
    median = float(distances.median()) if len(distances) else 0.0
    return median if median > 1e-12 else 1.0


def number_of_eigenfunctions(eigenvalues: Tensor, most: int | None, ratio: float | None) -> int:
    """J, fixed or else by the eigenvalues in falling order: never those too small to be trusted."""
    kept = int((eigenvalues > SMALLEST_EIGENVALUE * eigenvalues[0]).sum())
    if most is not None:
        return min(kept, most)
    if ratio is not None:
        share = eigenvalues.cumsum(0) / eigenvalues.sum()
        kept = min(kept, int((share <= ratio).sum()) + 1)  # the least J with sum_j<=J lambda_j / sum_j lambda_j > tau
    return kept
