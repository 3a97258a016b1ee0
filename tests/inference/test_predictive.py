"""Outputs under weight samples of a task's posterior."""

import pytest
import torch
from torch import Generator, Tensor

from metareplay.hypernets.task_maps import PerTaskParameters
from metareplay.inference.predictive import predictive_outputs
from metareplay.likelihoods import Categorical
from metareplay.model import ContinualModel, HeadLayout
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import run_flat
from metareplay.posteriors.base import PosteriorFamily
from metareplay.posteriors.dirac import DiracFamily
from metareplay.posteriors.gaussian import GaussianFamily


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
    outputs = predictive_outputs(model, x, 1, 6, generator=Generator().manual_seed(3))
    weights = model.posterior(1).rsample(6, generator=Generator().manual_seed(3))
    assert outputs.shape == (6, 11, 2)
    assert not outputs.requires_grad
    torch.testing.assert_close(outputs, run_flat(model.network, model.spec, weights, x)[..., :2].detach())
    assert len(outputs[:, 0, 0].unique()) == 6


@pytest.mark.parametrize("batch_size", [1, 4, 11, 100])
def test_the_batch_size_changes_nothing(batch_size: int, x: Tensor, rng: Generator) -> None:
    model = make_model(GaussianFamily(), rng)
    whole, parts = (predictive_outputs(model, x, 0, 3, generator=Generator().manual_seed(3), batch_size=size) for size in (500, batch_size))
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
    assert predictive_outputs(make_model(GaussianFamily(), rng), torch.empty(0, 2), 1, 4, generator=rng).shape == (4, 0, 2)
