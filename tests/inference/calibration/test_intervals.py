"""Intervals of answers that several tasks contribute to."""

import numpy as np
import pytest
import torch
from torch import Tensor

from metareplay import ContinualRegressor
from metareplay.inference.calibration.intervals import Part, mixed_interval


def part(rows: list[int], share: float, mean: float, std: float, targets: int = 1) -> Part:
    """A task that answers all rows alike, with an interval of 95 % of a normal distribution."""
    shape = (len(rows), targets)
    shares = torch.full((len(rows),), share, dtype=torch.float64)
    half = torch.full(shape, 1.959964 * std, dtype=torch.float64)
    return Part(torch.tensor(rows), shares, torch.full(shape, mean, dtype=torch.float64), half)


def mixed(parts: list[Part], count: int = 1) -> tuple[Tensor, Tensor]:
    """The interval around the mean of all parts."""
    mean = torch.zeros(count, parts[0].mean.shape[1], dtype=torch.float64)
    for one in parts:
        mean[one.rows] += one.share.unsqueeze(1) * one.mean
    return mixed_interval(parts, mean, 0.95)


def test_an_interval_of_one_task_is_its_own() -> None:
    lower, upper = mixed([part([0, 2], 1.0, 5.0, 2.0), part([1], 1.0, -1.0, 0.5)], count=3)
    assert lower.squeeze(1).tolist() == pytest.approx([5 - 3.919928, -1 - 0.979982, 5 - 3.919928], abs=1e-12)
    assert upper.squeeze(1).tolist() == pytest.approx([5 + 3.919928, -1 + 0.979982, 5 + 3.919928], abs=1e-12)


def test_tasks_that_agree_are_like_one() -> None:
    lower, upper = mixed([part([0], share, 3.0, 1.0, targets=2) for share in (0.2, 0.3, 0.5)])
    assert lower.tolist() == [pytest.approx([3 - 1.959964] * 2, abs=1e-9)]
    assert upper.tolist() == [pytest.approx([3 + 1.959964] * 2, abs=1e-9)]


@pytest.mark.parametrize("apart", [1.0, 4.0, 20.0])
@pytest.mark.parametrize("share", [0.5, 0.8])
def test_intervals_of_a_mixture_contain_as_much_as_they_say(apart: float, share: float) -> None:
    lower, upper = mixed([part([0], share, 0.0, 1.0), part([0], 1 - share, apart, 1.5)])
    random = np.random.default_rng(0)
    first = random.random(200_000) < share
    draws = np.where(first, random.normal(size=200_000), apart + 1.5 * random.normal(size=200_000))
    assert np.mean(draws < lower.item()) == pytest.approx(0.025, abs=0.002)
    assert np.mean(draws > upper.item()) == pytest.approx(0.025, abs=0.002)


def test_the_answer_is_always_inside() -> None:
    lower, upper = mixed([part([0], 0.985, 0.0, 1.0), part([0], 0.015, 1000.0, 1.0)])
    assert lower.item() == pytest.approx(-1.97, abs=0.03)
    assert upper.item() == pytest.approx(15.0)  # the mean, beyond nearly all targets


def test_months_that_cannot_be_told_apart_do_not_widen_intervals_too_much() -> None:
    """Two months like two others with an offset: a standard deviation of the mixture spans both."""

    def month(number: int, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(seed)
        x = random.normal(size=(rows, 3))
        return x, 20 * x[:, 0] - 10 * x[:, 1] + 20 * (number >= 2) + random.normal(0, 4, rows)

    model = ContinualRegressor(seed=0)
    for number in range(4):
        model.learn_task(*month(number, 120, number), name=f"month-{number}")
    inside, narrower = [], []
    for number in range(4):
        x, y = month(number, 400, 10 + number)
        answer = model.predict_full(x)
        assert answer.lower is not None
        assert answer.upper is not None
        inside.append((answer.lower <= y) & (y <= answer.upper))
        narrower.append(answer.upper - answer.lower < 2 * 1.96 * answer.std)
        assert ((answer.lower <= answer.mean) & (answer.mean <= answer.upper)).all()
    assert 0.93 < np.mean(inside) < 0.975
    assert np.mean(narrower) > 0.9
