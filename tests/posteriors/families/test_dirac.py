"""Point estimates: theta is the weight vector."""

import torch
from torch import Generator

from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.families.dirac import Dirac, DiracFamily, initial_weight_variances

SPEC = WeightSpec(("w",), (torch.Size([5]),))


def test_every_sample_is_theta_and_sends_its_gradient_back(rng: Generator) -> None:
    theta = torch.randn(5, requires_grad=True)
    samples = DiracFamily().at(theta, SPEC).rsample(3, generator=rng)
    assert samples.shape == (3, 5)
    assert torch.equal(samples, theta.expand(3, -1))
    (samples * torch.tensor([[1.0], [2.0], [4.0]])).sum().backward()
    assert theta.grad is not None
    assert torch.equal(theta.grad, torch.full((5,), 7.0))


def test_sampling_draws_no_random_numbers(rng: Generator) -> None:
    state = rng.get_state()
    DiracFamily().at(torch.zeros(5), SPEC).rsample(3, generator=rng)
    assert torch.equal(rng.get_state(), state)


def test_theta_starts_at_the_networks_own_start(rng: Generator) -> None:
    network = MLP((3,), (4,), 2)
    spec = WeightSpec.of(network)
    assert torch.equal(DiracFamily().initial(network, spec, generator=rng), spec.flatten(network))


def test_initial_variances_are_second_moments_per_weight() -> None:
    network = MLP((2,), (), 2)
    network.layers[0].weight.data = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    network.layers[0].bias.data = torch.tensor([0.5, -0.5])
    spec = WeightSpec.of(network)
    expected = torch.tensor([7.5] * 4 + [0.25] * 2)
    torch.testing.assert_close(initial_weight_variances(network, spec), expected)
    torch.testing.assert_close(DiracFamily().initial_variances(network, spec), expected)
    assert DiracFamily().weight_mask(spec).all()


def test_points_of_several_tasks_can_be_sampled() -> None:
    assert Dirac(torch.zeros(3, 5)).rsample(4, generator=torch.Generator()).shape == (4, 3, 5)
