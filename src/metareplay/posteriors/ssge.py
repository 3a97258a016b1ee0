"""The spectral Stein gradient estimator [Shi2018; Henning2021, sm:sec:ssge]: grad log q(w) from samples of q alone."""

import torch
from torch import Tensor

SMALLEST_EIGENVALUE = 1e-4
"""Eigenvalues below this share of the largest are dropped: their eigenvectors are rounding errors and samples' noise."""
JITTER = 1e-10
"""Added to the Gram matrix's diagonal, so that a singular one has an eigendecomposition."""


SMALLEST_DEVIATION = 0.01
"""Standard deviations of a Gaussian fit are at least this share of their root mean square."""


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

    The estimate vanishes a few widths from the samples. With ``around_gaussian`` only what the score has beyond that of the Gaussian
    with the samples' means and variances is estimated, and this Gaussian remains where no sample is near.
    """
    if not (samples.isfinite().all() and at.isfinite().all()):
        return torch.full_like(at, float("nan")).detach()  # whoever uses it reports the divergence
    centre = samples.detach().double().mean(0)
    w, points = samples.detach().double() - centre, at.detach().double() - centre  # kernels know differences only; (S, W), (n, W)
    squares = squared_distances(w, w)  # (S, S)
    variance = (median_distance(squares) if width is None else width) ** 2
    gram = torch.exp(-0.5 * squares / variance)  # K_ij = k(w^i, w^j); (S, S)
    eigenvalues, eigenvectors = torch.linalg.eigh(gram + JITTER * torch.eye(len(w), dtype=w.dtype, device=w.device))  # K u = lambda u
    eigenvalues, eigenvectors = eigenvalues.flip(0), eigenvectors.flip(1)  # the largest first
    kept = number_of_eigenfunctions(eigenvalues, eigenfunctions, ratio)
    eigenvalues, eigenvectors = eigenvalues[:kept], eigenvectors[:, :kept]  # (J,), (S, J)
    slopes = -(gram @ w - w * gram.sum(0).unsqueeze(1)) / variance  # sum_n grad_{w^n} k(w^n, w^s), for each s; (S, W)
    root = len(w) ** 0.5
    gamma = -(eigenvectors / (root * eigenvalues)).T @ slopes  # coefficients gamma_ij of sm:sec:ssge; (J, W)
    rest = torch.zeros_like(points)  # (n, W)
    if around_gaussian:
        precision = _precisions(w)  # (W,)
        gamma = gamma - eigenvectors.T @ (-w * precision) / root  # by Stein's identity for log q - log r: minus E[phi_j grad log r]
        rest = -points * precision  # grad log r of the Gaussian r; w is centred
    kernel = torch.exp(-0.5 * squared_distances(points, w) / variance)  # k(w, w^s); (n, S)
    phi = kernel @ (eigenvectors * (root / eigenvalues))  # eigenfunctions by the Nystroem method; (n, J)
    return (rest + phi @ gamma).to(at.dtype)  # eq. sm:eq:ssge, finite form; (n, W)


def _precisions(centred: Tensor) -> Tensor:
    """One over the variances of samples (S, W); zero where nothing varies: (W,)."""
    variances = centred.square().sum(0) / max(1, len(centred) - 1)  # (W,)
    floor = SMALLEST_DEVIATION**2 * variances.mean()
    return torch.zeros_like(variances) if floor == 0 else 1 / variances.clamp_min(floor)


def with_score(score: Tensor, weights: Tensor) -> Tensor:
    """A scalar with value 0 and the gradient of E log q, given the score (n, W) at weight samples (n, W)."""
    return (score * (weights - weights.detach())).sum(-1).mean()  # last line of eq. sm:eq:elbo:grad; (n, W) -> ()


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """|a_i - b_j|^2: (n, W), (S, W) -> (n, S)."""
    return (a.square().sum(1).unsqueeze(1) + b.square().sum(1) - 2 * a @ b.T).clamp_min(0.0)


def median_distance(squares: Tensor) -> float:
    """The median of the distances between different samples; 1 where all are equal or there is only one."""
    rows, columns = torch.triu_indices(len(squares), len(squares), 1)
    distances = squares[rows, columns].sqrt()  # (S, S) -> (S (S - 1) / 2,)
    median = float(distances.median()) if len(distances) else 0.0
    return median if median > 1e-12 else 1.0


def number_of_eigenfunctions(eigenvalues: Tensor, most: int | None, ratio: float | None) -> int:
    """J, from eigenvalues in falling order: never those too small to be trusted."""
    kept = int((eigenvalues > SMALLEST_EIGENVALUE * eigenvalues[0]).sum())
    if ratio is not None:
        share = eigenvalues.cumsum(0) / eigenvalues.sum()
        kept = min(kept, int((share <= ratio).sum()) + 1)  # the least J with sum_j<=J lambda_j / sum_j lambda_j > tau
    return kept if most is None else min(kept, most)
