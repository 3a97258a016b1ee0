"""The noise of regression targets, estimated before training: what no smooth function of the inputs explains."""

import torch
from torch import Tensor

from metareplay.benchmarks.base import TaskData

ROWS = 300
"""Rows that the estimate uses."""
LENGTHS = (0.5, 1.0, 2.0)
"""Length scales of the Gaussian kernel, in units of the typical distance of two inputs."""
LEAST = 0.05
"""The smallest noise, as a share of the targets' standard deviation."""


def noise_level(data: TaskData) -> float:
    """The leave-one-out error of ridge regression, linear or with the best Gaussian kernel; mean over targets."""
    step = max(1, -(-len(data.x) // ROWS))
    x, y = data.x[::step].flatten(1).double(), data.y[::step].double()  # (N, F), (N, D)
    spread = float(y.std(0, correction=0).mean())
    if len(x) < 3 or spread == 0:
        return max(spread, 1e-3)
    x, y = x - x.mean(0), y - y.mean(0)
    squared = torch.cdist(x, x).square()
    typical = squared.mean().clamp_min(1e-12)
    kernels = [x @ x.T, *(torch.exp(-squared / (2 * length**2 * typical)) for length in LENGTHS)]
    error = min(_leave_one_out(kernel, y) for kernel in kernels)
    return min(max(error, LEAST * spread), spread)


def _leave_one_out(kernel: Tensor, y: Tensor) -> float:
    """The lowest root mean squared leave-one-out error over strengths of the ridge."""
    values, vectors = torch.linalg.eigh(kernel)
    projected, scale = vectors.T @ y, float(values.clamp_min(0).mean())
    errors = []
    for strength in torch.logspace(-4, 2, 13, dtype=torch.float64) * max(scale, 1e-12):
        shrunk = values.clamp_min(0) / (values.clamp_min(0) + strength)  # (N,)
        left = y - vectors @ (shrunk.unsqueeze(1) * projected)  # (N, D)
        own = (vectors.square() @ shrunk).clamp_max(1 - 1e-6)  # the diagonal of the hat matrix (N,)
        errors.append(float((left / (1 - own).unsqueeze(1)).square().mean().sqrt()))
    return min(errors)
