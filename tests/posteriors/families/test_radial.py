"""Radial posteriors: the shape of their noise, and their prior-matching term."""

from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from metareplay.errors import ConfigError
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.families import radial
from metareplay.posteriors.families.dirac import Dirac
from metareplay.posteriors.families.gaussian import GaussianFamily, MeanFieldGaussian
from metareplay.posteriors.families.radial import Radial, RadialFamily
from metareplay.posteriors.matching.direct import prior_matching
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.posteriors.settings import NetworkStartSettings

SIZES = (300, 20, 7)


def noise_of(posterior: Radial, count: int, rng: Generator) -> tuple[Tensor, ...]:
    """(w - mean) / scale, layer by layer."""
    return ((posterior.rsample(count, generator=rng) - posterior.mean) / posterior.scale).split(SIZES, dim=-1)


@pytest.fixture
def posterior() -> Radial:
    width = sum(SIZES)
    return Radial(torch.linspace(-1, 1, width), torch.linspace(0.1, 2, width), SIZES)


def test_the_radius_is_normal_whatever_the_dimension(posterior: Radial, rng: Generator) -> None:
    count = 4000
    for part in noise_of(posterior, count, rng):
        radius = part.norm(dim=-1)  # |r| with r ~ N(0, 1)
        squared_error = (2 / count) ** 0.5  # standard error of the mean of r^2, whose variance is 2
        assert abs(float(radius.square().mean()) - 1) < 4 * squared_error


def test_layers_have_radii_of_their_own(posterior: Radial, rng: Generator) -> None:
    first, second, _ = (part.norm(dim=-1) for part in noise_of(posterior, 4000, rng))
    correlation = torch.corrcoef(torch.stack([first, second]))[0, 1]
    assert abs(float(correlation)) < 4 / 4000**0.5


def test_theta_is_read_as_a_gaussians() -> None:
    network = MLP((3,), (4,), 2)
    spec = WeightSpec.of(network)
    settings = NetworkStartSettings(keep_network_init=True)
    gaussian, family = GaussianFamily(settings), RadialFamily(settings)
    theta = family.initial(network, spec, generator=Generator().manual_seed(0))
    assert torch.equal(theta, gaussian.initial(network, spec, generator=Generator().manual_seed(0)))
    actual, expected = family.at(theta, spec), gaussian.at(theta, spec)
    assert actual.sizes == spec.sizes == (12, 4, 8, 2)
    assert torch.equal(actual.mean, expected.mean)
    assert torch.equal(actual.scale, expected.scale)


class Unknown:
    """A prior of which nothing but its density is known."""

    def log_prob(self, weights: Tensor) -> Tensor:
        return -weights.abs().sum(-1)


def test_with_any_density_the_prior_term_is_negative_entropy_plus_cross_entropy(posterior: Radial) -> None:
    prior, count = Unknown(), 50
    actual = prior_matching(posterior, prior, count, generator=Generator().manual_seed(3))
    draws = posterior.rsample(count, generator=Generator().manual_seed(3))
    torch.testing.assert_close(actual, -posterior.scale.log().sum() - prior.log_prob(draws).mean())


PRIORS = [GaussianPrior(1.5), MeanFieldGaussian(torch.linspace(2, -1, sum(SIZES)), torch.linspace(0.5, 2, sum(SIZES)))]


@pytest.mark.parametrize("prior", PRIORS, ids=["one variance", "one per weight"])
@pytest.mark.parametrize("groups", [(), (0, 1, 0)], ids=["apart", "two parts together"])
def test_with_a_gaussian_the_prior_term_is_exact(
    posterior: Radial, prior: GaussianPrior | MeanFieldGaussian, groups: tuple[int, ...], rng: Generator
) -> None:
    """Up to a constant: what two posteriors differ by is the mean of what their sampled terms differ by."""
    posteriors = [
        replace(posterior, groups=groups),
        Radial(posterior.mean.flip(0), posterior.scale.square() + 0.2, SIZES, groups),
    ]
    state = rng.get_state()
    exact = [prior_matching(q, prior, 1, generator=rng) for q in posteriors]
    assert torch.equal(rng.get_state(), state)
    sampled = [q.negative_entropy() - prior.log_prob(q.rsample(4000, generator=rng)) for q in posteriors]
    error = sum(float(terms.var()) / 4000 for terms in sampled) ** 0.5
    assert abs(float(sampled[0].mean() - sampled[1].mean() - exact[0] + exact[1])) < 4 * error


@pytest.mark.parametrize("groups", [(), (0, 1, 0)], ids=["apart", "two parts together"])
def test_groups_have_a_length_together(posterior: Radial, groups: tuple[int, ...]) -> None:
    """A group's noise has length |r|, however many parts it has: the same noise as if its parts stood together."""
    noise = torch.cat(noise_of(replace(posterior, groups=groups), 3, Generator().manual_seed(5)), dim=-1)
    generator = Generator().manual_seed(5)
    drawn, radius = (
        torch.randn(3, sum(SIZES), generator=generator),
        torch.randn(3, 2 if groups else 3, generator=generator),
    )
    member = torch.tensor(groups or (0, 1, 2)).repeat_interleave(torch.tensor(SIZES))
    for number in range(radius.shape[1]):
        own = drawn[:, member == number]
        expected = own / own.norm(dim=-1, keepdim=True) * radius[:, number : number + 1]
        torch.testing.assert_close(noise[:, member == number], expected, atol=2e-6, rtol=1e-4)


def test_closed_forms_are_used_where_they_exist(rng: Generator) -> None:
    state = rng.get_state()
    prior_matching(MeanFieldGaussian(torch.zeros(2), torch.ones(2)), GaussianPrior(), 1, generator=rng)
    assert torch.equal(rng.get_state(), state)


def test_a_family_without_entropy_is_refused(rng: Generator) -> None:
    with pytest.raises(ConfigError, match="Dirac needs a closed form, a known entropy or a density"):
        prior_matching(Dirac(torch.zeros(2)), GaussianPrior(), 1, generator=rng)


def test_outputs_that_came_later_have_a_radius_of_their_own(rng: Generator) -> None:
    small, large = (WeightSpec.of(MLP((3,), (4,), outputs)) for outputs in (2, 5))
    spec = large.grown_from(small)
    theta = torch.zeros(2 * spec.numel)
    family = RadialFamily()
    old, grown = family.at(theta[: 2 * small.numel], small), family.at(theta, spec)
    head = small.unflatten(old.rsample(20000, generator=rng))["layers.1.weight"]  # (n, 2, 4)
    later = spec.unflatten(grown.rsample(20000, generator=rng))["layers.1.weight"]  # (n, 5, 4)
    expected = float(old.scale[0]) ** 2
    for part in (head, later[:, :2], later[:, 2:]):
        length = part.flatten(1).square().sum(1)  # |scale * r|^2, whose mean is scale^2 in every group
        assert abs(float(length.mean()) / expected - 1) < 4 * (2 / 20000) ** 0.5
    again = WeightSpec.of(MLP((3,), (4,), 6)).grown_from(spec)
    assert again.runs == ((12, 4, 8, 12, 4, 2, 3, 1), (0, 1, 2, 4, 6, 3, 5, 7))
    assert small.runs == (small.sizes, (0, 1, 2, 3))


def test_noise_that_is_exactly_zero_leaves_a_weight_at_its_mean(
    monkeypatch: pytest.MonkeyPatch, rng: Generator
) -> None:
    """A single weight is a group of its own in networks with one output; one in some ten million draws is 0."""
    monkeypatch.setattr(radial, "normal", lambda *shape, generator, like: like.new_zeros(shape))
    posterior = Radial(torch.tensor([3.0, -2.0]), torch.ones(2), (1, 1))
    assert torch.equal(posterior.rsample(2, generator=rng), torch.tensor([[3.0, -2.0], [3.0, -2.0]]))
