"""Uncertainties for figures: counts in fixed bins, so that nothing grows with the test data."""

import torch
from torch import Tensor

DECADES = (-12, 4)
BINS_PER_DECADE = 8
EDGES = torch.logspace(*DECADES, (DECADES[1] - DECADES[0]) * BINS_PER_DECADE + 1, dtype=torch.float64)
"""The bins of uncertainty scores: confident tasks differ by powers of ten. Lower scores and 0 go to the first bin."""
CONFIDENCE_BINS = 15


def count_scores(scores: Tensor) -> Tensor:
    """The number of scores of each task in each bin: (T, N) -> (T, bins), integers."""
    bins = len(EDGES) - 1
    index = (torch.bucketize(scores.double(), EDGES, right=True) - 1).clamp(0, bins - 1)  # (T, N)
    counts = torch.zeros(len(scores), bins, dtype=torch.int64)
    return counts.scatter_add_(1, index, torch.ones_like(index))  # (T, N) -> (T, bins)


def reliability(confidence: Tensor, correct: Tensor) -> Tensor:
    """In equal bins of confidence: inputs, their summed confidence, correct answers; (N,), (N,) -> (3, bins)."""
    index = (confidence * CONFIDENCE_BINS).long().clamp(0, CONFIDENCE_BINS - 1)  # (N,)
    rows = torch.stack([torch.ones_like(confidence), confidence, correct.to(confidence.dtype)])  # (3, N)
    return torch.zeros(3, CONFIDENCE_BINS, dtype=confidence.dtype).index_add_(1, index, rows)  # (3, N) -> (3, bins)


def calibration_error(rows: Tensor) -> float:
    """Expected calibration error in percent of rows (3, bins): the mean over inputs of their bin's gap."""
    inputs, confidence, correct = rows
    return float(100.0 * (correct - confidence).abs().sum() / inputs.sum())  # mean of |accuracy - confidence|
