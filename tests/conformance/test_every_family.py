"""What every posterior family owes to the rest; a new family is tested as soon as a method uses it."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass

import pytest
import torch
from torch import Generator, nn

from metareplay.benchmarks.base import Scenario
from metareplay.learner.build import build_model
from metareplay.learner.config import build_config
from metareplay.learner.methods import METHODS
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec, run_flat
from metareplay.posteriors import base as posteriors
from metareplay.posteriors.base import HasLogProb, Posterior, PosteriorFamily
from metareplay.posteriors.divergences import kl, wasserstein2
from metareplay.posteriors.families.mixture import members_of
from metareplay.posteriors.settings import NetworkStartSettings


def _families() -> dict[str, PosteriorFamily]:
    """Each family as its first method builds it, and with means that start where the network does."""
    actual: dict[str, PosteriorFamily] = {}
    for method in METHODS.values():
        startable = any(issubclass(settings, NetworkStartSettings) for settings in method.family_part.settings)
        for keep in (False, True) if startable else (False,):
            if (name := method.family + ("-kept" if keep else "")) in actual:
                continue
            given: dict[str, object] = {"posterior.keep_network_init": True} if keep else {}
            if keep and method.task_map_part.generated:
                given["hypernet.initialisation"] = "gaussian"
            config = build_config({"method": method.name, "network": "mlp-3"}, given, "test")
            actual[name] = build_model(config, "classification", Scenario.CLASS, (2,)).family
    return actual


FAMILIES = _families()
NETWORKS: dict[str, tuple[nn.Module, nn.Module]] = {
    "mlp": (MLP((3,), (4,), 2), MLP((3,), (4,), 5)),
    "linear": (MLP((3,), (), 1), MLP((3,), (), 2)),
    "convolution": (
        nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 2), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(4, 2)),
        nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 2), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(4, 5)),
    ),
}


@pytest.fixture(params=FAMILIES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=NETWORKS)
def network_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _start(name: str, network_name: str, seed: int = 0) -> tuple[PosteriorFamily, nn.Module, WeightSpec, torch.Tensor]:
    family, network = FAMILIES[name], NETWORKS[network_name][0]
    spec = WeightSpec.of(network)
    return family, network, spec, family.initial(network, spec, generator=Generator().manual_seed(seed))


def test_every_known_family_is_here() -> None:
    assert {family.removesuffix("-kept") for family in FAMILIES} == set(posteriors.FAMILIES)
    assert {name: family.name for name, family in FAMILIES.items()} == {
        name: name.removesuffix("-kept") for name in FAMILIES
    }


def test_theta_has_the_length_the_family_says(name: str, network_name: str) -> None:
    family, network, spec, theta = _start(name, network_name)
    length = family.num_parameters(spec)
    assert theta.shape == (length,)
    assert theta.isfinite().all()
    assert not theta.requires_grad
    variances = family.initial_variances(network, spec)
    assert variances.shape == (length,)
    assert (variances >= 0).all()
    assert variances.any()
    mask = family.weight_mask(spec)
    assert (mask.shape, mask.dtype) == ((length,), torch.bool)
    assert int(mask.sum()) == spec.numel * members_of(family.at(theta, spec))[1]


def test_the_start_follows_the_generator(name: str, network_name: str) -> None:
    assert torch.equal(_start(name, network_name, 1)[3], _start(name, network_name, 1)[3])
    state = torch.get_rng_state()
    _start(name, network_name, 2)
    assert torch.equal(torch.get_rng_state(), state)


def test_samples_are_weights_of_the_network(name: str, network_name: str, rng: Generator) -> None:
    family, network, spec, theta = _start(name, network_name)
    posterior = family.at(theta, spec)
    assert isinstance(posterior, Posterior)
    for count in (1, 4):
        samples = posterior.rsample(count, generator=rng)
        assert samples.shape == (count, spec.numel)
        assert samples.isfinite().all()
        assert run_flat(network, spec, samples, torch.ones(6, 3)).isfinite().all()
    assert len(posterior.rsample(12, generator=rng).unique(dim=0)) == (family.weight_sets or 12)
    if isinstance(posterior, HasLogProb):
        density = posterior.log_prob(posterior.rsample(4, generator=rng))
        assert density.shape == (4,)
        assert density.isfinite().all()


def test_sampling_follows_the_generator(name: str, network_name: str) -> None:
    family, _, spec, theta = _start(name, network_name)
    state = torch.get_rng_state()
    first, again, other = (
        family.at(theta, spec).rsample(6, generator=Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (family.weight_sets is not None)
    assert torch.equal(torch.get_rng_state(), state)


def test_gradients_reach_all_of_theta(name: str, network_name: str, rng: Generator) -> None:
    family, _, spec, theta = _start(name, network_name)
    theta = theta.requires_grad_()
    samples = family.at(theta, spec).rsample(6, generator=rng)  # of every member of an ensemble
    (gradient,) = torch.autograd.grad((samples * torch.randn(samples.shape, generator=rng)).sum(), theta)
    assert gradient.isfinite().all()
    trained = family.weight_mask(spec) if name == "ewc-point" else slice(None)  # its precisions are not trained
    assert (gradient[trained] != 0).all()


def test_growth_moves_each_element_to_a_place_of_its_own(name: str, network_name: str) -> None:
    family, (small, large) = FAMILIES[name], NETWORKS[network_name]
    spec, larger = WeightSpec.of(small), WeightSpec.of(large)
    positions = family.positions_in(spec, larger)
    assert positions.shape == (family.num_parameters(spec),)
    assert len(positions.unique()) == len(positions)
    assert int(positions.min()) >= 0
    assert int(positions.max()) < family.num_parameters(larger)
    assert torch.equal(family.weight_mask(larger)[positions], family.weight_mask(spec))
    assert torch.equal(family.positions_in(spec, spec), torch.arange(family.num_parameters(spec)))


def test_growth_keeps_the_outputs_of_the_centre(name: str, network_name: str) -> None:
    family, (small, large) = FAMILIES[name], NETWORKS[network_name]
    _, _, spec, theta = _start(name, network_name)
    larger = WeightSpec.of(large)
    grown = family.initial(large, larger, generator=Generator().manual_seed(1))
    grown[family.positions_in(spec, larger)] = theta
    x = torch.linspace(-1, 1, 12).view(4, 3)
    before = run_flat(small, spec, theta[family.weight_mask(spec)].view(-1, spec.numel), x)
    after = run_flat(large, larger, grown[family.weight_mask(larger)].view(-1, larger.numel), x)
    torch.testing.assert_close(after[..., : before.shape[-1]], before)


def assert_stacked(together: object, single: Sequence[object]) -> None:
    """A batched distribution holds the tensors of the single ones, stacked; all else is equal."""
    assert is_dataclass(together)
    for field in fields(together):
        actual, expected = getattr(together, field.name), [getattr(each, field.name) for each in single]
        if isinstance(actual, torch.Tensor):
            torch.testing.assert_close(actual, torch.stack(expected))
        elif isinstance(actual, Posterior):  # the members of a mixture
            assert_stacked(actual, expected)
        else:
            assert all(each == actual for each in expected)


def test_several_thetas_at_once_are_several_posteriors(name: str, network_name: str) -> None:
    family, spec = FAMILIES[name], WeightSpec.of(NETWORKS[network_name][0])
    thetas = torch.stack([_start(name, network_name)[3] + 0.1 * shift for shift in range(3)])
    together, single = family.at(thetas, spec), [family.at(theta, spec) for theta in thetas]
    assert_stacked(together, single)
    shifted = family.at(thetas + 0.2, spec)
    for divergence in (kl, wasserstein2):
        each = type(members_of(together)[0])
        if divergence.supports(each, each):
            loop = [divergence(one, family.at(theta + 0.2, spec)) for one, theta in zip(single, thetas, strict=True)]
            torch.testing.assert_close(divergence(together, shifted), torch.stack(loop))
            assert (torch.stack(loop) > 0).all()
