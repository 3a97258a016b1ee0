"""The spectral Stein gradient estimator [Shi2018; Henning2021, sm:sec:ssge]: grad log q(w) from samples of q alone."""

from collections.abc import Iterator
from typing import TypedDict

import torch
from torch import Tensor

from metareplay.posteriors.products import distances_from

SMALLEST_EIGENVALUE = 1e-4
"""Eigenvalues below this share of the largest are dropped: their eigenvectors are rounding errors and samples' noise."""
BLOCK = 16384
"""Columns that are worked on at once, of 16 weight samples; fewer of more."""
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
    onto: Tensor | None = None,
) -> Tensor:
    """Estimate grad_w log q(w) at the points ``at`` (n, W) from samples (S, W) of q: (n, W), without gradients.

    The RBF kernel has the given width, or the median distance of the samples. The J largest eigenvalues are used: at most
    ``eigenfunctions`` of them, and no more than it takes for their sum to exceed the share ``ratio`` of the sum of all.

    It is linear in the samples, with coefficients that depend on their inner products alone: so the weights are passed over twice.

    The estimate vanishes a few widths from the samples. With ``around_gaussian`` only what the score has beyond that of the Gaussian
    with the samples' means and variances is estimated, and this Gaussian remains where no sample is near.

    It is added to the numbers ``onto`` (n, W), in place, where they are given: weight samples are large.
    """
    points, size, own = at.detach(), len(samples), at is samples
    samples = points if own else samples.detach()
    squares = squared_distances(
        samples, None if own else points
    )  # of samples and points to samples; (S + n, S), or (S, S)
    score = torch.zeros_like(points) if onto is None else onto
    if not squares.isfinite().all():
        return score.fill_(float("nan"))  # whoever uses it reports the divergence
    near, rest = score_coefficients(
        squares, size, len(points), width=width, eigenfunctions=eigenfunctions, ratio=ratio
    )  # (n, S) each
    rest = rest - rest.mean(1, keepdim=True) + 1 / size  # times w: of centred samples, and their mean; (n, S)
    floor = SMALLEST_DEVIATION**2 * _mean_variance(squares[:size], at.shape[1])
    dtype = _precision(samples, at.shape[1])
    near, rest = near.to(dtype), rest.to(dtype)
    for part in _blocks(at.shape[1], size + len(points)):
        rows = samples[:, part].to(dtype)  # (S, block)
        w = rows - rows.mean(0)
        found = near @ w  # eq. sm:eq:ssge, finite form; (n, block)
        if around_gaussian:  # by Stein's identity for log q - log r: minus E[phi_j grad log r], and grad log r itself
            found.addcmul_(torch.addmm(points[:, part].to(dtype), rest, rows, beta=-1), _precisions(w, floor))
        score[:, part] += found
    return score


def score_coefficients(
    squares: Tensor,
    size: int,
    count: int,
    *,
    width: float | None = None,
    eigenfunctions: int | None = None,
    ratio: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Two combinations of S samples for each of n points, (n, S): the score there, and functions' projections on the eigenfunctions.

    ``squares`` are squared distances to the samples, (S + n, S) or more: the samples come first, the points last, and may be the same.
    """
    variance = (median_distance(squares[:size, :size]) if width is None else width) ** 2
    kernel = torch.exp(-0.5 * squares[:, :size] / variance)
    gram, kernel = kernel[:size], kernel[-count:]  # k(w^i, w^j), k(w, w^j); (S, S), (n, S)
    eigenvalues, eigenvectors = torch.linalg.eigh(
        gram + JITTER * torch.eye(size, dtype=gram.dtype, device=gram.device)
    )  # K u = lambda u
    eigenvalues, eigenvectors = eigenvalues.flip(0), eigenvectors.flip(1)  # the largest first
    kept = number_of_eigenfunctions(eigenvalues, eigenfunctions, ratio)
    eigenvalues, eigenvectors = eigenvalues[:kept], eigenvectors[:, :kept]  # (J,), (S, J)
    slopes = (torch.diag(gram.sum(0)) - gram) / variance  # times w: sum_n grad_{w^n} k(w^n, w^s), for each s; (S, S)
    root = size**0.5
    gamma = -(eigenvectors / (root * eigenvalues)).T @ slopes  # times w: coefficients gamma_ij of sm:sec:ssge; (J, S)
    phi = kernel @ (eigenvectors * (root / eigenvalues))  # eigenfunctions by the Nystroem method; (n, J)
    return phi @ gamma, phi @ eigenvectors.T / root


def _blocks(size: int, rows: int) -> Iterator[slice]:
    """Columns that fit in a processor's cache, of so many rows."""
    step = max(1, 16 * BLOCK // rows)
    return (slice(start, start + step) for start in range(0, size, step))


def _precision(samples: Tensor, total: int) -> torch.dtype:
    """Double where a sample has few elements in all."""
    return torch.float64 if total <= BLOCK else samples.dtype


def _centred(samples: Tensor, at: Tensor | None, total: int) -> tuple[Tensor, Tensor]:
    """Samples (S, W) and points (n, W), or the samples again, less the mean of the samples; in double precision if they are few."""
    rows = samples.to(_precision(samples, total))
    mean = rows.mean(0)
    centred = rows - mean
    return centred, centred if at is None else at - mean


def _mean_variance(squares: Tensor, size: int) -> float:
    """Mean over their elements of the variances of S samples, from their squared distances (S, S)."""
    return float(squares.sum()) / (2 * len(squares) * max(1, len(squares) - 1) * size)


def _precisions(centred: Tensor, floor: float) -> Tensor:
    """One over the variances of samples (S, W) whose mean is zero, at least ``floor``; zero where that is zero: (W,)."""
    if floor == 0:
        return centred.new_zeros(centred.shape[1])
    return 1 / (centred.square().sum(0) / max(1, len(centred) - 1)).clamp_min(floor)  # (S, W) -> (W,)


def squared_distances(samples: Tensor, at: Tensor | None = None) -> Tensor:
    """|a_i - a_j|^2 of samples (S, W) to each other, and of other points (n, W) to them: (S, S) or (S + n, S), in double precision."""
    size, count = samples.shape[1], 0 if at is None else len(at)
    own, other = (samples.new_zeros(rows, len(samples), dtype=torch.float64) for rows in (len(samples), count))
    squares = samples.new_zeros(count, dtype=torch.float64)
    for part in _blocks(size, len(samples) + count):
        w, here = _centred(samples[:, part], None if at is None else at[:, part], size)  # (S, block), (n, block)
        own += w @ w.T  # (S, S)
        if at is not None:
            other += here @ w.T  # (n, S)
            squares += torch.linalg.vecdot(here, here)  # (n,)
    found = distances_from(own)
    if at is not None:
        found = torch.cat([found, squares.unsqueeze(1) + own.diagonal() - 2 * other])  # (S + n, S)
    return found.clamp_min(0.0)


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
