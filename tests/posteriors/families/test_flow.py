"""Normalising flows as posteriors: one density, seen from samples and from weights."""

import sys

import pytest
import torch
from torch import Generator, Tensor

from metareplay.errors import ConfigError
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.divergences import kl, monte_carlo_kl, replay_divergence
from metareplay.posteriors.families import flow as flows
from metareplay.posteriors.families.flow import Flow, FlowFamily, FlowSettings, couplings
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.matching.direct import prior_matching
from metareplay.posteriors.priors.gaussian import GaussianPrior


def wild_flow(weights: int, rng: Generator, transforms: int = 4, strength: float = 1.5) -> Flow:
    """A flow far from a Gaussian, in float64."""
    layers = couplings(weights, transforms, (8,), "tanh")
    parameters = strength * layers.units * torch.randn(layers.spec.numel, generator=rng)
    mean, scale = torch.linspace(-1, 1, weights), torch.linspace(0.5, 1.5, weights)
    return Flow(mean.double(), scale.double(), parameters.double(), layers)


def affine_flow(mean: Tensor, scale: Tensor) -> Flow:
    """Coupling layers that do nothing: a mean-field Gaussian."""
    layers = couplings(mean.shape[-1], 2, (3,), "tanh")
    return Flow(mean, scale, torch.zeros(*mean.shape[:-1], layers.spec.numel, dtype=mean.dtype), layers)


def test_the_density_of_samples_is_that_of_weights(rng: Generator) -> None:
    flow = wild_flow(7, rng)
    weights, density = flow.rsample_and_log_prob(50, generator=Generator().manual_seed(1))
    torch.testing.assert_close(flow.log_prob(weights), density)
    assert torch.equal(flow.rsample(50, generator=Generator().manual_seed(1)), weights)


def test_the_volume_change_is_that_of_the_jacobian(rng: Generator) -> None:
    flow = wild_flow(5, rng)
    z = torch.randn(5, generator=rng, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(
        lambda z: flow.mean + flow.scale * flow._couple(z.unsqueeze(0), inverse=False)[0][0], z
    )
    at = (flow.mean + flow.scale * flow._couple(z.unsqueeze(0), inverse=False)[0])[0]
    normal = -0.5 * z.square().sum() - 2.5 * torch.log(torch.tensor(2 * torch.pi, dtype=torch.float64))
    torch.testing.assert_close(flow.log_prob(at.unsqueeze(0))[0], normal - jacobian.detach().det().abs().log())


def test_gradients_reach_all_parameters_through_samples_and_density(rng: Generator) -> None:
    flow = wild_flow(6, rng)
    leaves = [tensor.requires_grad_() for tensor in (flow.mean, flow.scale, flow.parameters)]
    weights, density = flow.rsample_and_log_prob(20, generator=rng)
    for value in (weights.sin().sum(), flow.log_prob(weights.detach()).sum()):
        gradients = torch.autograd.grad(value, leaves, retain_graph=True)
        assert all(gradient.isfinite().all() and (gradient != 0).all() for gradient in gradients)
    # no shift changes the density at a flow's own samples
    through_samples = torch.autograd.grad(density.sum(), leaves[1:])
    assert all(gradient.isfinite().all() and gradient.any() for gradient in through_samples)


def test_several_flows_at_once_are_several_flows(rng: Generator) -> None:
    single = [wild_flow(5, rng) for _ in range(6)]
    mean, scale, parameters = (
        torch.stack([getattr(flow, name) for flow in single]).view(2, 3, -1) for name in ("mean", "scale", "parameters")
    )
    together = Flow(mean, scale, parameters, single[0].layers)
    weights, density = together.rsample_and_log_prob(4, generator=rng)
    assert weights.shape == (4, 2, 3, 5)
    assert density.shape == (4, 2, 3)
    torch.testing.assert_close(together.log_prob(weights), density)
    for index, flow in enumerate(single):
        torch.testing.assert_close(flow.log_prob(weights[:, index // 3, index % 3]), density[:, index // 3, index % 3])


def test_without_couplings_it_is_a_gaussian(rng: Generator) -> None:
    mean, scale = torch.randn(2, 4, generator=rng), 0.3 + torch.rand(2, 4, generator=rng)
    flow, gaussian = affine_flow(mean[0], scale[0]), MeanFieldGaussian(mean[0], scale[0])
    weights = flow.rsample(3, generator=Generator().manual_seed(2))
    torch.testing.assert_close(weights, gaussian.rsample(3, generator=Generator().manual_seed(2)))
    torch.testing.assert_close(flow.log_prob(weights), gaussian.log_prob(weights))


@pytest.mark.parametrize("kind", ["fkl", "rkl"])
def test_monte_carlo_divergences_meet_the_closed_form(kind: str, rng: Generator) -> None:
    means, scales = torch.randn(2, 4, generator=rng), 0.5 + torch.rand(2, 4, generator=rng)
    old, new = (affine_flow(mean, scale) for mean, scale in zip(means, scales, strict=True))
    exact = [MeanFieldGaussian(mean, scale) for mean, scale in zip(means, scales, strict=True)]
    expected = kl(*exact) if kind == "fkl" else kl(*reversed(exact))
    actual = replay_divergence(kind, old, new, 40_000, generator=rng)  # type: ignore[arg-type]
    assert abs(float(actual / expected) - 1) < 0.05
    same = replay_divergence(kind, old, old, 10, generator=rng)  # type: ignore[arg-type]
    torch.testing.assert_close(same, torch.zeros(()), atol=1e-5, rtol=0)


def test_old_samples_for_forward_and_new_samples_for_reverse(rng: Generator) -> None:
    old, new = (affine_flow(torch.full((3,), mean), torch.full((3,), 0.5)) for mean in (0.0, 2.0))
    for kind, origin in (("fkl", old), ("rkl", new)):
        weights = origin.rsample(5, generator=Generator().manual_seed(3))
        first, second = (old, new) if kind == "fkl" else (new, old)
        by_hand = (first.log_prob(weights) - second.log_prob(weights)).mean()
        actual = replay_divergence(kind, old, new, 5, generator=Generator().manual_seed(3))  # type: ignore[arg-type]
        torch.testing.assert_close(actual, by_hand)


def test_prior_matching_meets_the_closed_form(rng: Generator) -> None:
    mean, scale = torch.randn(4, generator=rng), 0.5 + torch.rand(4, generator=rng)
    prior = GaussianPrior(2.0)
    actual = prior_matching(affine_flow(mean, scale), prior, 40_000, generator=rng)
    assert abs(float(actual / kl(MeanFieldGaussian(mean, scale), prior)) - 1) < 0.05
    loop = monte_carlo_kl(MeanFieldGaussian(mean, scale), prior, 40_000, generator=rng)
    assert abs(float(loop / actual) - 1) < 0.05


def test_a_flow_starts_like_a_gaussian(rng: Generator) -> None:
    network = MLP((8,), (10,), 4)
    spec = WeightSpec.of(network)
    family = FlowFamily(FlowSettings(keep_network_init=True))
    flow = family.at(family.initial(network, spec, generator=rng), spec)
    samples = flow.rsample(2000, generator=rng)
    initial = spec.flatten(network)
    assert float((samples.mean(0) - initial).abs().max()) < 0.05
    assert 0.05 < float(samples.std(0).mean()) < 0.15


def test_outputs_that_come_later_leave_old_weights_alone(rng: Generator) -> None:
    family = FlowFamily(FlowSettings())
    small, large = MLP((3,), (4,), 2), MLP((3,), (4,), 5)
    spec = WeightSpec.of(small)
    larger = WeightSpec.of(large).grown_from(spec)
    theta = family.initial(small, spec, generator=rng) + 0.5 * torch.randn(family.num_parameters(spec), generator=rng)
    grown = family.initial(large, larger, generator=rng)
    assert len(grown) == family.num_parameters(larger) == family.num_parameters(spec) + 2 * (larger.numel - spec.numel)
    grown[family.positions_in(spec, larger)] = theta
    before, after, kept = family.at(theta, spec), family.at(grown, larger), spec.positions_in(larger)
    weights, density = after.rsample_and_log_prob(5, generator=rng)
    torch.testing.assert_close(after.log_prob(weights), density)
    new = torch.ones(larger.numel, dtype=torch.bool)
    new[kept] = False
    added = MeanFieldGaussian(after.mean[new], after.scale[new]).log_prob(weights[:, new])
    # old weights as before, new ones on their own
    torch.testing.assert_close(before.log_prob(weights[:, kept]) + added, density)


def test_a_flow_that_is_too_large_is_refused_with_numbers() -> None:
    spec = WeightSpec.of(MLP((784,), (400, 400), 2))
    with pytest.raises(
        ConfigError, match=r"flow over the 475,202 weights of this network has [\d,]+ parameters, more than 20,000,000"
    ):
        FlowFamily(FlowSettings()).num_parameters(spec)


@pytest.mark.parametrize("hidden", [(), (3,), (4, 5)])
@pytest.mark.parametrize("transforms", [1, 2, 5])
@pytest.mark.parametrize("outputs", [1, 2])
def test_parameters_are_counted_before_they_are_made(hidden: tuple[int, ...], transforms: int, outputs: int) -> None:
    family, spec = (
        FlowFamily(FlowSettings(flow_hidden=hidden, flow_transforms=transforms)),
        WeightSpec.of(MLP((3,), (2,), outputs)),
    )
    assert family.num_parameters(spec) == 2 * spec.numel + couplings(spec.numel, transforms, hidden, "tanh").spec.numel


def test_one_weight_cannot_be_coupled() -> None:
    with pytest.raises(ConfigError, match="has only one"):
        FlowFamily(FlowSettings()).num_parameters(WeightSpec.of(torch.nn.Linear(1, 1, bias=False)))


def test_without_zuko_the_command_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zuko.flows", None)
    with pytest.raises(ConfigError, match=r'pip install "metareplay\[flow\]"'):
        flows.Couplings(4, 2, (3,), "tanh")
