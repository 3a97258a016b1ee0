"""What every criterion based on predictive samples must satisfy to choose between tasks."""

import pytest
import torch
from torch import Generator, Tensor

from metareplay.inference.criteria import CRITERIA, Evidence, criteria_for
from metareplay.inference.predictive import log_likelihoods
from metareplay.inference.settings import InferenceSettings

BY_SAMPLES = [part.name for part in criteria_for("classification") if part.score is not None and part.features is None]
pytestmark = pytest.mark.parametrize("name", BY_SAMPLES)
SINGLE, MULTI = [slice(0, 3)] * 4, [slice(3 * task, 3 * task + 3) for task in range(4)]


def scores(name: str, outputs: Tensor, heads: list[slice], **settings: float) -> Tensor:
    """Outputs (T, S, B, C) -> scores (T, B)."""
    criterion = CRITERIA[name]
    statistics = [criterion.score(log_likelihoods(samples)) for samples in outputs]  # type: ignore[misc]
    return criterion.compare(Evidence(statistics, heads, InferenceSettings(**settings)))  # type: ignore[arg-type]


@pytest.mark.parametrize("heads", [SINGLE, MULTI])
def test_a_score_per_task_and_input(name: str, heads: list[slice], rng: Generator) -> None:
    actual = scores(name, torch.randn(4, 6, 9, 3, generator=rng), heads)
    assert actual.shape == (4, 9)
    assert actual.dtype == torch.float64
    assert actual.isfinite().all()
    assert (actual >= 0).all()


@pytest.mark.parametrize("heads", [SINGLE, MULTI])
def test_the_order_of_tasks_means_nothing(name: str, heads: list[slice], rng: Generator) -> None:
    outputs, order = 3 * torch.randn(4, 6, 9, 3, generator=rng), torch.randperm(4, generator=rng)
    torch.testing.assert_close(scores(name, outputs[order], heads), scores(name, outputs, heads)[order])


@pytest.mark.parametrize("heads", [SINGLE, MULTI])
def test_inputs_are_scored_on_their_own(name: str, heads: list[slice], rng: Generator) -> None:
    outputs = 3 * torch.randn(4, 6, 9, 3, generator=rng)
    torch.testing.assert_close(scores(name, outputs[:, :, 2:5], heads), scores(name, outputs, heads)[:, 2:5])


@pytest.mark.parametrize("heads", [SINGLE, MULTI])
def test_the_one_sure_task_among_unsure_ones_wins(name: str, heads: list[slice], rng: Generator) -> None:
    outputs = 6.0 * torch.randn(4, 40, 20, 3, generator=rng)
    outputs[2] = 0.01 * torch.randn(40, 20, 3, generator=rng) + torch.tensor([20.0, 0.0, 0.0])
    assert (scores(name, outputs, heads).argmin(0) == 2).all()


def test_tasks_may_have_different_numbers_of_classes(name: str, rng: Generator) -> None:
    criterion = CRITERIA[name]
    statistics = [criterion.score(log_likelihoods(torch.randn(6, 9, classes, generator=rng))) for classes in (2, 5, 3)]
    for heads in ([slice(0, 2), slice(0, 5), slice(0, 3)], [slice(0, 2), slice(2, 7), slice(7, 10)]):
        actual = criterion.compare(Evidence(statistics, heads, InferenceSettings()))
        assert actual.shape == (3, 9)
        assert actual.isfinite().all()


@pytest.mark.parametrize("size", [1e4, 1e30, 3e38])
def test_extreme_outputs_have_finite_scores(name: str, size: float, rng: Generator) -> None:
    outputs = torch.randn(4, 5, 30, 3, generator=rng).clamp(-1, 1) * size
    for heads in (SINGLE, MULTI):
        assert scores(name, outputs, heads).isfinite().all()
