"""The local reparametrisation trick: what can be checked without statistics."""

import torch
from torch import Generator

from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.local_reparametrisation import run_locally


def test_without_width_it_is_the_network_itself(rng: Generator) -> None:
    network = MLP((2, 3), (5, 4), 3, "tanh").double()
    spec = WeightSpec.of(network)
    mean = spec.flatten(network)
    x = torch.randn(7, 2, 3, dtype=torch.float64, generator=rng)
    outputs = run_locally(network, spec, MeanFieldGaussian(mean, torch.zeros_like(mean)), x, 4, generator=rng)
    assert outputs.shape == (4, 7, 3)
    torch.testing.assert_close(outputs, network(x).expand(4, -1, -1), rtol=0, atol=1e-6)


def test_every_example_and_sample_has_noise_of_its_own(rng: Generator) -> None:
    network = MLP((3,), (4,), 2)
    spec = WeightSpec.of(network)
    posterior = MeanFieldGaussian(spec.flatten(network), torch.full((spec.numel,), 0.5))
    outputs = run_locally(network, spec, posterior, torch.ones(6, 3), 5, generator=rng)  # six times the same input
    assert len(outputs[..., 0].unique()) == 30


def test_gradients_reach_every_mean_and_scale(rng: Generator) -> None:
    network = MLP((3,), (4,), 2, "tanh")
    spec = WeightSpec.of(network)
    mean = torch.randn(spec.numel, generator=rng, requires_grad=True)
    scale = (torch.rand(spec.numel, generator=rng) + 0.1).requires_grad_()
    outputs = run_locally(
        network, spec, MeanFieldGaussian(mean, scale), torch.randn(6, 3, generator=rng), 5, generator=rng
    )
    for gradient in torch.autograd.grad(outputs.square().sum(), (mean, scale)):
        assert gradient.isfinite().all()
        assert (gradient != 0).all()


def test_gradients_stay_finite_where_an_input_is_all_zero(rng: Generator) -> None:
    network = MLP((3,), (), 2)
    spec = WeightSpec.of(network)
    scale = torch.zeros(spec.numel, requires_grad=True)
    outputs = run_locally(
        network, spec, MeanFieldGaussian(torch.zeros(spec.numel), scale), torch.zeros(4, 3), 2, generator=rng
    )
    (gradient,) = torch.autograd.grad(outputs.sum(), scale)
    assert gradient.isfinite().all()
