"""Figures of continual learning, by hand."""

import pytest

from metareplay.evaluation.continual import (
    Moment,
    average_incremental,
    forgetting,
    forward_transfer,
    minimum_accuracy,
    stability_gap,
)

MATRIX = [[90.0], [80.0, 70.0], [60.0, 75.0, 100.0]]
MOMENTS = [
    Moment(1, 0, (90.0,)),
    Moment(1, 5, (50.0,)),
    Moment(1, 10, (80.0,)),
    Moment(2, 0, (80.0, 70.0)),
    Moment(2, 5, (60.0, 72.0)),
]


def test_average_incremental_accuracy_is_the_mean_of_the_means_so_far() -> None:
    assert average_incremental(MATRIX) == pytest.approx((90 + 75 + 235 / 3) / 3)


def test_forgetting_is_the_loss_since_a_task_was_learned() -> None:
    assert forgetting(MATRIX) == pytest.approx((90 + 70 + 100) / 3 - 235 / 3)
    assert forgetting(MATRIX, [90.0, 80.0, 100.0]) == pytest.approx((70 - 80) / 3)


def test_forward_transfer_is_above_chance_and_leaves_out_the_first_task() -> None:
    assert forward_transfer([99.0, 60.0, 40.0], [50.0, 50.0, 50.0]) == pytest.approx(0.0)
    assert forward_transfer([99.0], [50.0]) is None


def test_minimum_accuracy_and_stability_gap() -> None:
    assert minimum_accuracy(MOMENTS) == pytest.approx((50 + 70) / 2)
    assert stability_gap(MOMENTS) == pytest.approx((40 + 20 + 0) / 3)
    assert minimum_accuracy([]) is None
    assert stability_gap([]) is None
