"""Bins of uncertainties and of confidences."""

import pytest
import torch

from metareplay.evaluation.uncertainty import (
    BINS_PER_DECADE,
    CONFIDENCE_BINS,
    DECADES,
    EDGES,
    calibration_error,
    count_scores,
    reliability,
)


def test_scores_fall_into_decades() -> None:
    scores = torch.tensor([[0.0, 1e-20, 1e-3, 0.05, 1e9], [0.5, 0.5, 0.5, 0.5, 0.5]], dtype=torch.float64)
    counts = count_scores(scores)
    assert counts.shape == (2, len(EDGES) - 1)
    assert counts.sum(1).tolist() == [5, 5]
    decades = counts.view(2, -1, BINS_PER_DECADE).sum(-1)  # (2, decades)
    assert decades[0, 0] == 2  # zero and what is smaller than any bin
    assert decades[0, -3 - DECADES[0]] == 1
    assert decades[0, -2 - DECADES[0]] == 1
    assert decades[0, -1] == 1  # larger than any bin
    assert decades[1, -1 - DECADES[0]] == 5


def test_a_calibrated_answer_has_no_error_and_a_boastful_one_has_its_gap() -> None:
    confidence = torch.tensor([0.75, 0.75, 0.75, 0.75], dtype=torch.float64)
    assert calibration_error(reliability(confidence, torch.tensor([True, True, True, False]))) == pytest.approx(0)
    assert calibration_error(reliability(confidence, torch.tensor([True, False, False, False]))) == pytest.approx(50)


def test_gaps_of_bins_do_not_cancel() -> None:
    confidence = torch.tensor([0.9, 0.6], dtype=torch.float64)
    assert calibration_error(reliability(confidence, torch.tensor([False, True]))) == pytest.approx(
        100 * (0.9 + 0.4) / 2
    )


def test_full_confidence_is_in_the_last_bin() -> None:
    rows = reliability(torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.bool))
    assert rows[:, CONFIDENCE_BINS - 1].tolist() == [3, 3, 3]
    assert calibration_error(rows) == 0
