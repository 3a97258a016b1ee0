"""What the scores of every task-inference criterion must satisfy."""

from itertools import pairwise

import pytest
import torch
from torch import Generator, Tensor

from metareplay.inference.criteria import CRITERIA, criteria_for
from metareplay.inference.predictive import log_likelihoods

ALONE = [
    criterion.name for criterion in criteria_for("classification") if criterion.alone and criterion.score is not None
]
"""Criteria by which a task's score depends on that task alone."""

pytestmark = pytest.mark.parametrize("name", ALONE)


def score(name: str, outputs: Tensor) -> Tensor:
    return CRITERIA[name].score(log_likelihoods(outputs))  # type: ignore[misc]


@pytest.mark.parametrize("samples", [1, 2, 9])
@pytest.mark.parametrize("classes", [1, 2, 5])
def test_one_score_per_input(name: str, samples: int, classes: int, rng: Generator) -> None:
    scores = score(name, torch.randn(samples, 7, classes, generator=rng))
    assert scores.shape == (7,)
    assert scores.dtype == torch.float64
    assert scores.isfinite().all()
    assert (scores >= 0).all()


def test_the_order_of_samples_and_classes_means_nothing(name: str, rng: Generator) -> None:
    outputs = torch.randn(6, 50, 4, generator=rng) * 3
    expected = score(name, outputs)
    assert len(expected.unique()) == 50
    torch.testing.assert_close(score(name, outputs[torch.randperm(6, generator=rng)]), expected)
    torch.testing.assert_close(score(name, outputs[..., torch.randperm(4, generator=rng)]), expected)


def test_each_input_is_scored_on_its_own(name: str, rng: Generator) -> None:
    outputs = torch.randn(6, 50, 4, generator=rng) * 3
    order = torch.randperm(50, generator=rng)
    torch.testing.assert_close(score(name, outputs[:, order]), score(name, outputs)[order])


def test_adding_a_constant_to_all_outputs_changes_nothing(name: str, rng: Generator) -> None:
    outputs = torch.randn(6, 50, 4, generator=rng, dtype=torch.float64)
    torch.testing.assert_close(score(name, outputs + 7), score(name, outputs))


def test_a_more_certain_prediction_scores_lower(name: str, rng: Generator) -> None:
    noise = torch.randn(40, 20, 3, generator=rng)
    first_class = torch.tensor([1.0, 0.0, 0.0])
    steps = [(20.0, 0.01), (8.0, 0.3), (3.0, 1.0), (0.0, 6.0)]  # margin of the first class, spread of the samples
    scores = [score(name, margin * first_class + spread * noise) for margin, spread in steps]
    for surer, less_sure in pairwise(scores):
        assert (surer < less_sure).all()


@pytest.mark.parametrize("size", [1e2, 1e4, 1e30, 3e38])
def test_extreme_outputs_have_finite_scores(name: str, size: float, rng: Generator) -> None:
    outputs = torch.randn(5, 30, 4, generator=rng).clamp(-1, 1) * size
    outputs[:, 0] = 0.0
    outputs[:, 1, :] = torch.tensor([size, -size, size, -size])
    scores = score(name, outputs)
    assert scores.isfinite().all()
    assert (scores >= 0).all()


def test_it_says_what_it_needs(name: str, rng: Generator) -> None:
    criterion = CRITERIA[name]
    assert criterion.name == name
    assert criterion.description
    single = score(name, torch.randn(1, 9, 4, generator=rng))
    assert criterion.needs_samples == (float(single.max()) == 0)  # one sample says nothing, or it does
