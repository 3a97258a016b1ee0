"""Outputs under weight samples of a task's posterior."""

import pytest
import torch
from torch import Generator, Tensor

from metareplay.errors import ConfigError
from metareplay.inference.predictive import AT_ONCE, predictive_outputs
from metareplay.likelihoods import Categorical
from metareplay.model import ContinualModel
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import run_flat
from metareplay.posteriors.base import PosteriorFamily
from metareplay.posteriors.families.dirac import DiracFamily
from metareplay.posteriors.families.gaussian import GaussianFamily
from metareplay.task_maps.direct import PerTaskParameters
from metareplay.task_maps.heads import HeadLayout


def make_model(family: PosteriorFamily, rng: Generator) -> ContinualModel:
    model = ContinualModel(
        lambda outputs: MLP((2,), (4,), outputs),
        family,
        lambda size, _: PerTaskParameters(size),
        HeadLayout.SINGLE,
        Categorical(),
        lambda family, network, spec: None,
    )
    for classes in (3, 2):
        model.add_task(classes, generator=rng)
    return model


@pytest.fixture
def x(rng: Generator) -> Tensor:
    return torch.randn(11, 2, generator=rng)


def test_every_input_sees_the_same_weight_samples(x: Tensor, rng: Generator) -> None:
    model = make_model(GaussianFamily(), rng)
    outputs = predictive_outputs(model, x, 1, AT_ONCE + 1, generator=Generator().manual_seed(3))
    again = Generator().manual_seed(3)
    weights = torch.cat([model.posterior(1).rsample(count, generator=again) for count in (AT_ONCE, 1)])
    assert outputs.shape == (6, 11, 2)
    assert not outputs.requires_grad
    torch.testing.assert_close(outputs, run_flat(model.network, model.spec, weights, x)[..., :2].detach())
    assert len(outputs[:, 0, 0].unique()) == 6


@pytest.mark.parametrize("batch_size", [1, 4, 11, 100])
def test_the_batch_size_changes_nothing(batch_size: int, x: Tensor, rng: Generator) -> None:
    model = make_model(GaussianFamily(), rng)
    whole, parts = (
        predictive_outputs(model, x, 0, 3, generator=Generator().manual_seed(3), batch_size=size)
        for size in (500, batch_size)
    )
    torch.testing.assert_close(parts, whole)


def test_a_point_needs_one_sample(x: Tensor, rng: Generator) -> None:
    model = make_model(DiracFamily(), rng)
    assert predictive_outputs(model, x, 0, 100, generator=rng).shape == (1, 11, 3)


def test_all_outputs_can_be_asked_for(x: Tensor, rng: Generator) -> None:
    model = make_model(DiracFamily(), rng)
    everything = predictive_outputs(model, x, 1, 1, generator=rng, every_output=True)
    assert everything.shape == (1, 11, 3)
    assert torch.equal(everything[..., :2], predictive_outputs(model, x, 1, 1, generator=rng))


def test_no_inputs_give_no_outputs(rng: Generator) -> None:
    assert predictive_outputs(make_model(GaussianFamily(), rng), torch.empty(0, 2), 1, 4, generator=rng).shape == (
        4,
        0,
        2,
    )


def test_moments_predict_like_many_samples(x: Tensor, rng: Generator) -> None:
    model = make_model(GaussianFamily(), rng)
    drawn = predictive_outputs(model, x, 0, 20_000, generator=rng)
    actual = predictive_outputs(model, x, 0, 20_000, generator=rng, moments=True)
    assert actual.shape == drawn.shape
    torch.testing.assert_close(actual.mean(0), drawn.mean(0), rtol=0, atol=0.02)
    torch.testing.assert_close(actual.var(0), drawn.var(0), rtol=0.1, atol=1e-3)
    probabilities = [outputs.softmax(-1).mean(0) for outputs in (actual, drawn)]
    torch.testing.assert_close(*probabilities, rtol=0, atol=0.01)


@pytest.mark.parametrize("count", [1, 4, 5, 12])
def test_as_many_samples_as_asked_for(count: int, x: Tensor, rng: Generator) -> None:
    model = make_model(GaussianFamily(), rng)
    outputs = predictive_outputs(model, x, 0, count, generator=rng)
    assert outputs.shape == (count, 11, 3)
    assert len(outputs[:, 0, 0].unique()) == count


def test_moments_need_gaussian_weights(x: Tensor, rng: Generator) -> None:
    with pytest.raises(ConfigError, match="independent Gaussians"):
        predictive_outputs(make_model(DiracFamily(), rng), x, 0, 5, generator=rng, moments=True)
