"""Parts of the initialisation by output variances, against values by hand."""

import math

import pytest
import torch
from torch import Generator, nn

from metareplay.nets.activations import ACTIVATIONS
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec
from metareplay.task_maps.base import Start
from metareplay.task_maps.chunked import ChunkedHypernetwork
from metareplay.task_maps.initialise import (
    activation_second_moment,
    embedding_variances,
    hyperfan_variances,
    match_output_variances,
)


@pytest.mark.parametrize("moment", [1.0, 0.01, 7.0])
def test_second_moments_with_a_closed_form(moment: float) -> None:
    layer = nn.Linear(30, 10)
    variance = 30 * 2 / (30 + 10) * moment  # of the pre-activation, with Xavier weights
    assert math.isclose(activation_second_moment(nn.Identity(), moment, layer), variance, rel_tol=1e-9)
    assert math.isclose(activation_second_moment(nn.ReLU(), moment, layer), variance / 2, rel_tol=1e-9)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "elu"])
def test_second_moments_by_sampling(name: str, rng: Generator) -> None:
    activation, layer, moment = ACTIVATIONS[name](), nn.Linear(30, 10), 0.8
    draws = activation(math.sqrt(1.5 * moment) * torch.randn(200_000, generator=rng, dtype=torch.float64)).square()
    error = float(draws.std()) / math.sqrt(len(draws))
    assert abs(activation_second_moment(activation, moment, layer) - float(draws.mean())) < 5 * error


def test_rows_get_the_target_variances(rng: Generator) -> None:
    layer = nn.Linear(10_000, 3)
    target = torch.tensor([0.0, 1.0, 4.0])
    match_output_variances(layer, 2.0, target, rng)
    actual = 10_000 * 2.0 * layer.weight.detach().square().mean(1)  # H * Var(a) * E[h^2]
    assert float(actual[0]) == 0
    # five standard errors of a uniform's mean square
    torch.testing.assert_close(actual, target, rtol=5 * math.sqrt(0.8 / 10_000), atol=0)
    assert not layer.bias.any()


def test_a_row_takes_the_mean_of_its_chunks_target_variances(rng: Generator) -> None:
    layer = nn.Linear(10_000, 3)
    target = torch.tensor([1.0, 2.0, 3.0, 5.0, 0.0])  # the second chunk has two elements
    match_output_variances(layer, 1.0, target, rng)
    actual = 10_000 * layer.weight.detach().square().mean(1)
    torch.testing.assert_close(actual, torch.tensor([3.0, 1.0, 3.0]), rtol=5 * math.sqrt(0.8 / 10_000), atol=0)


def test_rows_that_no_chunk_uses_are_zero(rng: Generator) -> None:
    layer = nn.Linear(4, 3)
    match_output_variances(layer, 1.0, torch.ones(2), rng)
    assert layer.weight.isfinite().all()
    assert not layer.weight[2].any()


@pytest.mark.parametrize(("relu", "gain"), [(True, 2.0), (False, 1.0)])
def test_hyperfan_variances_by_hand(relu: bool, gain: float) -> None:
    spec = WeightSpec.of(MLP((5,), (4,), 2))
    parts = spec.unflatten(hyperfan_variances(spec, relu=relu))
    assert torch.allclose(parts["layers.0.weight"], torch.tensor(gain / 2 / 5))
    assert torch.allclose(parts["layers.1.weight"], torch.tensor(gain / 2 / 4))
    assert torch.allclose(parts["layers.1.bias"], torch.tensor(gain / 2))
    without = WeightSpec.of(nn.Conv2d(3, 4, 2, bias=False))
    assert torch.allclose(hyperfan_variances(without, relu=relu), torch.tensor(gain / 12))
    mixed = WeightSpec.of(
        nn.Sequential(nn.Conv2d(3, 4, 2, bias=False), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(36, 2))
    )
    parts = mixed.unflatten(hyperfan_variances(mixed, relu=relu))
    assert torch.allclose(parts["0.weight"], torch.tensor(gain / 12))  # no bias shares with it
    assert torch.allclose(parts["1.weight"], torch.tensor(0.5))  # scale and shift of inputs with variance one
    assert torch.allclose(parts["1.bias"], torch.tensor(0.5))
    assert torch.allclose(parts["3.weight"], torch.tensor(gain / 2 / 36))


def test_variances_by_chunk_embeddings_by_hand() -> None:
    """((n_e + n_c) v - n_e Var(e)) / n_c, at least 1e-5; the last chunk has one element."""
    variances = embedding_variances(torch.tensor([1.0, 3.0, 0.4, 0.4, 9.0]), 2, (3, 0.5), 2)
    torch.testing.assert_close(variances, torch.tensor([(5 * 2 - 1.5) / 2, (5 * 0.4 - 1.5) / 2, (5 * 9 - 1.5) / 2]))
    assert embedding_variances(torch.tensor([0.003]), 1, (32, 1.0), 32).tolist() == [pytest.approx(1e-5)]


@pytest.mark.parametrize("per_task", [False, True])
def test_outputs_get_their_variances_from_chunk_embeddings(per_task: bool, rng: Generator) -> None:
    hypernetwork = ChunkedHypernetwork(
        8000,
        hidden=(),
        chunk_size=4000,
        task_embedding_size=50,
        task_embedding_std=0.1,
        chunk_embedding_size=200,
        chunk_embeddings_per_task=per_task,
        by_embeddings=True,
        generator=rng,
    )
    target = torch.cat([torch.full((4000,), 0.5), torch.full((4000,), 2.0)])
    hypernetwork.add_task(Start(torch.zeros(8000), target, None), generator=rng)
    actual = hypernetwork.theta(0).detach().view(2, -1).var(1)
    torch.testing.assert_close(actual, torch.tensor([0.5, 2.0]), rtol=0.35, atol=0)  # one embedding of 200 numbers each
    hypernetwork.grow(torch.arange(8000), Start(torch.zeros(9000), torch.full((9000,), 2.0), None), generator=rng)
    assert hypernetwork.theta(0).shape == (9000,)
