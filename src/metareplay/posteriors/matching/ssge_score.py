"""The spectral Stein gradient estimator [Shi2018; Henning2021, sm:sec:ssge]: grad log q(w) from samples of q alone."""

from collections.abc import Iterator
from typing import TypedDict

import torch
from torch import Tensor

from metareplay.posteriors.products import distances_from

SMALLEST_EIGENVALUE = 1e-4
"""Eigenvalues below this fraction of the largest are dropped: their eigenvectors are rounding and sampling noise."""
BLOCK = 16384
"""Columns processed at once for 16 weight samples; fewer for more samples."""
JITTER = 1e-10
"""Added to the diagonal of the Gram matrix, so that the eigendecomposition of a singular one succeeds."""
SMALLEST_DEVIATION = 0.01
"""Standard deviations of a Gaussian fit are at least this fraction of their root mean square."""


class Choices(TypedDict):
    """The hyperparameters of the estimator."""

    width: float | None
    """Width of the RBF kernel; None: the median distance between samples."""
    eigenfunctions: int | None
    ratio: float | None
    below: bool
    """Whether the sum of the J largest eigenvalues stays below the fraction ``ratio``, instead of exceeding it."""
    zeros: bool
    """Whether the median counts each sample's distance to itself."""


def ssge_score(
    samples: Tensor,
    at: Tensor,
    *,
    width: float | None = None,
    eigenfunctions: int | None = None,
    ratio: float | None = None,
    below: bool = False,
    zeros: bool = False,
    around_gaussian: bool = False,
    onto: Tensor | None = None,
) -> Tensor:
    """Estimate grad_w log q(w) at the points ``at`` (n, W) from samples (S, W) of q: (n, W), without gradients.

    The RBF kernel has the given width, or the median distance between samples. The J largest eigenvalues are used: at
    most ``eigenfunctions`` of them, and no more than needed for their sum to exceed the fraction ``ratio`` of the
    sum of all, or with ``below`` one fewer, but at least one. With ``zeros`` the median counts each sample's distance
    to itself.

    The estimate is linear in the samples, with coefficients that depend on inner products only, so the weights are
    traversed twice.

    It vanishes a few widths away from the samples. With ``around_gaussian`` only the difference from the score of the
    Gaussian with the samples' means and variances is estimated, and this Gaussian's score remains far from all samples.

    If ``onto`` (n, W) is given, the estimate is added to it in place: weight samples are large.
    """
    points, size, same = at.detach(), len(samples), at is samples
    samples = points if same else samples.detach()
    squares = squared_distances(samples, None if same else points)  # to the samples; (S + n, S), or (S, S)
    score = torch.zeros_like(points) if onto is None else onto
    if not squares.isfinite().all():
        return score.fill_(float("nan"))  # the training loop reports the divergence
    choices = Choices(width=width, eigenfunctions=eigenfunctions, ratio=ratio, below=below, zeros=zeros)
    near, rest = score_coefficients(squares, size, len(points), **choices)  # (n, S) each
    # applied to w: projection of centred samples, plus their mean; (n, S)
    rest = rest - rest.mean(1, keepdim=True) + 1 / size
    floor = SMALLEST_DEVIATION**2 * _mean_variance(squares[:size], at.shape[1])
    dtype = _precision(samples, at.shape[1])
    near, rest = near.to(dtype), rest.to(dtype)
    for part in _blocks(at.shape[1], size + len(points)):
        rows = samples[:, part].to(dtype)  # (S, block)
        w = rows - rows.mean(0)
        estimate = near @ w  # eq. sm:eq:ssge, finite form; (n, block)
        if around_gaussian:  # by Stein's identity for log q - log r: minus E[phi_j grad log r], and grad log r itself
            estimate.addcmul_(torch.addmm(points[:, part].to(dtype), rest, rows, beta=-1), _precisions(w, floor))
        score[:, part] += estimate
    return score


def score_coefficients(
    squares: Tensor,
    size: int,
    count: int,
    *,
    width: float | None = None,
    eigenfunctions: int | None = None,
    ratio: float | None = None,
    below: bool = False,
    zeros: bool = False,
) -> tuple[Tensor, Tensor]:
    """Coefficients (n, S) of S samples at each of n points: for the score, and for projections onto the eigenfunctions.

    ``squares`` are squared distances to the samples, (S + n, S) or more: samples first, points last; they may coincide.
    """
    variance = (median_distance(squares[:size, :size], zeros=zeros) if width is None else width) ** 2
    kernel = torch.exp(-0.5 * squares[:, :size] / variance)
    gram, kernel = kernel[:size], kernel[-count:]  # k(w^i, w^j), k(w, w^j); (S, S), (n, S)
    jitter = JITTER * torch.eye(size, dtype=gram.dtype, device=gram.device)
    eigenvalues, eigenvectors = torch.linalg.eigh(gram + jitter)  # K u = lambda u
    eigenvalues, eigenvectors = eigenvalues.flip(0), eigenvectors.flip(1)  # largest first
    kept = number_of_eigenfunctions(eigenvalues, eigenfunctions, ratio, below=below)
    eigenvalues, eigenvectors = eigenvalues[:kept], eigenvectors[:, :kept]  # (J,), (S, J)
    slopes = (torch.diag(gram.sum(0)) - gram) / variance  # times w: sum_n grad_{w^n} k(w^n, w^s), for each s; (S, S)
    root = size**0.5
    gamma = -(eigenvectors / (root * eigenvalues)).T @ slopes  # times w: coefficients gamma_ij of sm:sec:ssge; (J, S)
    phi = kernel @ (eigenvectors * (root / eigenvalues))  # eigenfunctions by the Nystroem method; (n, J)
    return phi @ gamma, phi @ eigenvectors.T / root


def _blocks(size: int, rows: int) -> Iterator[slice]:
    """Slices of columns of ``rows`` rows that fit in a processor's cache."""
    step = max(1, 16 * BLOCK // rows)
    return (slice(start, start + step) for start in range(0, size, step))


def _precision(samples: Tensor, total: int) -> torch.dtype:
    """Double precision where samples have few elements in total."""
    return torch.float64 if total <= BLOCK else samples.dtype


def _centred(samples: Tensor, at: Tensor | None, total: int) -> tuple[Tensor, Tensor]:
    """Samples (S, W) and points (n, W), or the samples again, minus the mean of the samples."""
    rows = samples.to(_precision(samples, total))
    mean = rows.mean(0)
    centred = rows - mean
    return centred, centred if at is None else at - mean


def _mean_variance(squares: Tensor, size: int) -> float:
    """Mean variance of the elements of S samples, from their squared distances (S, S)."""
    return float(squares.sum()) / (2 * len(squares) * max(1, len(squares) - 1) * size)


def _precisions(centred: Tensor, floor: float) -> Tensor:
    """Inverse variances, at least ``floor``, of centred samples (S, W); zeros if ``floor`` is zero: (W,)."""
    if floor == 0:
        return centred.new_zeros(centred.shape[1])
    return 1 / (centred.square().sum(0) / max(1, len(centred) - 1)).clamp_min(floor)  # (S, W) -> (W,)


def squared_distances(samples: Tensor, at: Tensor | None = None) -> Tensor:
    """Squared distances of samples (S, W) and any points (n, W) to the samples: (S, S) or (S + n, S), in float64."""
    size, count = samples.shape[1], 0 if at is None else len(at)
    gram, cross = (samples.new_zeros(rows, len(samples), dtype=torch.float64) for rows in (len(samples), count))
    norms = samples.new_zeros(count, dtype=torch.float64)
    for part in _blocks(size, len(samples) + count):
        w, here = _centred(samples[:, part], None if at is None else at[:, part], size)  # (S, block), (n, block)
        gram += w @ w.T  # (S, S)
        if at is not None:
            cross += here @ w.T  # (n, S)
            norms += torch.linalg.vecdot(here, here)  # (n,)
    squares = distances_from(gram)  # (S, S)
    if at is not None:
        squares = torch.cat([squares, norms.unsqueeze(1) + gram.diagonal() - 2 * cross])  # (S + n, S)
    return squares.clamp_min(0.0)


def median_distance(squares: Tensor, *, zeros: bool = False) -> float:
    """The median distance between different samples; 1 if all are equal or there is only one.

    With ``zeros`` that of the whole matrix, which has every distance twice and each sample's distance to itself.
    """
    rows, columns = torch.triu_indices(len(squares), len(squares), 1)
    distances = (squares.flatten() if zeros else squares[rows, columns]).sqrt()  # (S, S) -> (S (S - 1) / 2,) or (S S,)
    median = float(distances.median()) if len(distances) else 0.0
    return median if median > 1e-12 else 1.0


def number_of_eigenfunctions(eigenvalues: Tensor, most: int | None, ratio: float | None, *, below: bool = False) -> int:
    """J, fixed or from the eigenvalues in descending order; those too small to be trusted are never used.

    A ratio of 1 means all of them. ``below`` counts those whose sum, with all larger ones, stays below the ratio.
    """
    kept = int((eigenvalues > SMALLEST_EIGENVALUE * eigenvalues[0]).sum())
    if most is not None:
        return min(kept, most)
    if ratio is None or (below and ratio == 1):
        return kept
    share = eigenvalues.cumsum(0) / eigenvalues.sum()
    if below:
        return min(kept, max(1, int((share < ratio).sum())))
    return min(kept, int((share <= ratio).sum()) + 1)  # the least J with sum_j<=J lambda_j / sum_j lambda_j > tau
