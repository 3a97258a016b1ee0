"""Sampling pre-activations is equivalent to sampling weights; fixed seeds, tolerance five standard errors."""

import math

import pytest
import torch
from torch import Generator, Tensor

from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec, run_flat
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.local_reparametrisation import run_locally

ERRORS = 5
DRAWS = 40_000


def _posterior(spec: WeightSpec, generator: Generator) -> MeanFieldGaussian:
    mean = torch.randn(spec.numel, generator=generator, dtype=torch.float64)
    return MeanFieldGaussian(
        mean.requires_grad_(), (torch.rand(spec.numel, generator=generator, dtype=torch.float64) + 0.2).requires_grad_()
    )


def _draw(
    local: bool, network: MLP, spec: WeightSpec, q: MeanFieldGaussian, x: Tensor, samples: int, generator: Generator
) -> Tensor:
    if local:
        return run_locally(network, spec, q, x, samples, generator=generator)
    return run_flat(network, spec, q.rsample(samples, generator=generator), x)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_moments_of_the_outputs_agree(activation: str, rng: Generator) -> None:
    network = MLP((3,), (4,), 2, activation)
    spec = WeightSpec.of(network)
    x = torch.randn(2, 3, generator=rng, dtype=torch.float64)
    with torch.no_grad():
        q = _posterior(spec, rng)
        sampled, local = (_draw(kind, network, spec, q, x, DRAWS, rng) for kind in (False, True))  # (S, B, C) each
    for power in (1, 2):
        first, second = sampled**power, local**power
        error = ((first.var(0) + second.var(0)) / DRAWS).sqrt()
        assert ((first.mean(0) - second.mean(0)).abs() < ERRORS * error).all()
    spread = [outputs.var(0) for outputs in (sampled, local)]
    assert (spread[0] > 0.1).all()
    torch.testing.assert_close(spread[0], spread[1], rtol=0.1, atol=0)


def test_only_weight_sampling_moves_examples_together(rng: Generator) -> None:
    network = MLP((3,), (4,), 1)
    spec = WeightSpec.of(network)
    x = torch.randn(1, 3, generator=rng, dtype=torch.float64).expand(2, -1)  # one input twice
    with torch.no_grad():
        q = _posterior(spec, rng)
        correlation = [
            torch.corrcoef(_draw(kind, network, spec, q, x, DRAWS, rng)[..., 0].T)[0, 1] for kind in (False, True)
        ]
    assert float(correlation[0]) > 1 - 1e-9
    assert abs(float(correlation[1])) < ERRORS / math.sqrt(DRAWS)


@pytest.mark.parametrize("local", [False, True])
def test_gradients_of_a_linear_network_are_unbiased(local: bool, rng: Generator) -> None:
    network = MLP((3,), (), 1)
    spec = WeightSpec.of(network)
    q = _posterior(spec, rng)
    x = torch.randn(1, 3, generator=rng, dtype=torch.float64)
    estimates = []
    for _ in range(40):
        outputs = _draw(local, network, spec, q, x, 1000, rng)
        estimates.append(torch.cat(torch.autograd.grad(outputs.square().mean(), (q.mean, q.scale))))
    draws = torch.stack(estimates)
    inputs = torch.cat([x[0], torch.ones(1, dtype=torch.float64)])  # the bias sees a one
    mean, scale = q.mean.detach(), q.scale.detach()
    # of (mean . x)^2 + sum (scale x)^2
    expected = torch.cat([2 * (mean @ inputs) * inputs, 2 * scale * inputs.square()])
    error = draws.std(0) / math.sqrt(len(draws))
    assert (error < 0.05 * expected.abs().mean()).all()
    assert ((draws.mean(0) - expected).abs() < ERRORS * error).all()


def test_its_gradients_vary_less(rng: Generator) -> None:
    network = MLP((3,), (), 1)
    spec = WeightSpec.of(network)
    q = _posterior(spec, rng)
    x = torch.randn(50, 3, generator=rng, dtype=torch.float64)
    variance = []
    for local in (False, True):
        gradients = [
            torch.autograd.grad(_draw(local, network, spec, q, x, 1, rng).square().mean(), q.scale)[0]
            for _ in range(200)
        ]
        variance.append(float(torch.stack(gradients).var(0).mean()))
    assert variance[1] < 0.5 * variance[0]
