"""What is kept of uncertainties for pictures: counts in fixed bins, so that nothing grows with the test data."""

import torch
from torch import Tensor

DECADES = (-12, 4)
BINS_PER_DECADE = 8
EDGES = torch.logspace(*DECADES, (DECADES[1] - DECADES[0]) * BINS_PER_DECADE + 1, dtype=torch.float64)
"""The bins of uncertainty scores: confident tasks differ by powers of ten. What is lower (also 0) joins the first bin."""
CONFIDENCE_BINS = 15


def count_scores(scores: Tensor) -> Tensor:
    """How many scores of each task lie in each bin: (T, N) -> (T, bins), whole numbers."""
    bins = len(EDGES) - 1
    place = (torch.bucketize(scores.double(), EDGES, right=True) - 1).clamp(0, bins - 1)  # (T, N)
    return torch.zeros(len(scores), bins, dtype=torch.int64).scatter_add_(
        1, place, torch.ones_like(place)
    )  # (T, N) -> (T, bins)


def reliability(confidence: Tensor, right: Tensor) -> Tensor:
    """By confidence, in equal bins from 0 to 1: inputs, their summed confidence, right answers; (N,), (N,) -> (3, bins)."""
    place = (confidence * CONFIDENCE_BINS).long().clamp(0, CONFIDENCE_BINS - 1)  # (N,)
    rows = torch.stack([torch.ones_like(confidence), confidence, right.to(confidence.dtype)])  # (3, N)
    return torch.zeros(3, CONFIDENCE_BINS, dtype=confidence.dtype).index_add_(1, place, rows)  # (3, N) -> (3, bins)


def calibration_error(rows: Tensor) -> float:
    """Expected calibration error in percent: the mean over inputs of |accuracy - confidence| of their bin; rows (3, bins)."""
    inputs, confidence, right = rows
    return float(100.0 * (right - confidence).abs().sum() / inputs.sum())
