"""The mean-field Gaussian: what theta means, samples, densities, starting values."""

import math

import pytest
import torch
from torch import Generator, Tensor
from torch.distributions import Independent, Normal

from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.families.gaussian import GaussianFamily, GaussianSettings, MeanFieldGaussian
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.posteriors.settings import NetworkStartSettings


@pytest.fixture
def posterior(rng: Generator) -> MeanFieldGaussian:
    mean = torch.randn(6, generator=rng, dtype=torch.float64)
    scale = torch.rand(6, generator=rng, dtype=torch.float64) + 0.1
    return MeanFieldGaussian(mean.requires_grad_(), scale.requires_grad_())


def test_theta_is_means_then_rhos() -> None:
    theta = torch.tensor([1.0, -2.0, 0.0, 2.5])
    posterior = GaussianFamily().at(theta, WeightSpec(("w",), (torch.Size([2]),)))
    assert torch.equal(posterior.mean, theta[:2])
    expected = [math.log1p(math.exp(-2.5)), math.log(2.0)]  # softplus(rho - 2.5)
    torch.testing.assert_close(posterior.scale, torch.tensor(expected))
    assert abs(expected[0] - 0.08) < 0.002  # "sigma starts near 0.08"


def test_sampling_is_reparametrised(posterior: MeanFieldGaussian, rng: Generator) -> None:
    samples = posterior.rsample(5, generator=rng)
    assert samples.shape == (5, 6)
    noise = (samples - posterior.mean).detach() / posterior.scale.detach()  # SM eq. reparam:trick solved for epsilon
    factors = torch.arange(1.0, 6.0, dtype=torch.float64).unsqueeze(1)
    to_mean, to_scale = torch.autograd.grad((factors * samples).sum(), (posterior.mean, posterior.scale))
    torch.testing.assert_close(to_mean, torch.full((6,), 15.0, dtype=torch.float64))
    torch.testing.assert_close(to_scale, (factors * noise).sum(0))


def test_samples_follow_the_generator(posterior: MeanFieldGaussian) -> None:
    first = posterior.rsample(3, generator=Generator().manual_seed(1))
    assert torch.equal(first, posterior.rsample(3, generator=Generator().manual_seed(1)))
    assert not torch.equal(first, posterior.rsample(3, generator=Generator().manual_seed(2)))
    assert len(first.unique()) == first.numel()


def test_the_density_is_that_of_independent_normals(posterior: MeanFieldGaussian, rng: Generator) -> None:
    weights = torch.randn(4, 6, generator=rng, dtype=torch.float64)
    expected = Independent(Normal(posterior.mean, posterior.scale), 1).log_prob(weights)
    torch.testing.assert_close(posterior.log_prob(weights), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("variance", [1.0, 0.25, 9.0])
def test_the_priors_density_is_that_of_a_centred_normal(variance: float, rng: Generator) -> None:
    weights = torch.randn(4, 6, generator=rng, dtype=torch.float64)
    scale = torch.full((6,), math.sqrt(variance), dtype=torch.float64)
    expected = Independent(Normal(torch.zeros_like(scale), scale), 1).log_prob(weights)
    torch.testing.assert_close(GaussianPrior(variance).log_prob(weights), expected, rtol=1e-12, atol=1e-12)


@pytest.fixture
def network() -> MLP:
    return MLP((50,), (40,), 10)


def _uniform_variance_error(bound: float, count: int) -> float:
    """Standard error of the mean square of ``count`` numbers uniform in (-bound, bound)."""
    return bound**2 * math.sqrt(4 / 45 / count)


def test_theta_starts_uniform(network: MLP, rng: Generator) -> None:
    spec, family = WeightSpec.of(network), GaussianFamily()
    theta = family.initial(network, spec, generator=rng)
    mean, rho = theta.split(spec.numel)
    assert len(theta) == family.num_parameters(spec) == 2 * spec.numel
    for part, bound in ((mean, 0.1), (rho, 0.5)):
        assert 0.99 * bound < float(part.max()) <= bound
        assert -bound <= float(part.min()) < -0.99 * bound
    variances = family.initial_variances(network, spec)
    assert torch.allclose(variances[: spec.numel], torch.tensor(0.2**2 / 12))
    assert torch.allclose(variances[spec.numel :], torch.tensor(1 / 12))
    # The two agree within five standard errors.
    assert abs(float(mean.square().mean()) - 0.2**2 / 12) < 5 * _uniform_variance_error(0.1, spec.numel)
    assert abs(float(rho.square().mean()) - 1 / 12) < 5 * _uniform_variance_error(0.5, spec.numel)


def test_means_can_start_where_the_network_does(network: MLP, rng: Generator) -> None:
    spec, family = WeightSpec.of(network), GaussianFamily(NetworkStartSettings(keep_network_init=True))
    theta = family.initial(network, spec, generator=rng)
    assert torch.equal(theta[: spec.numel], spec.flatten(network))
    other = GaussianFamily().initial(network, spec, generator=Generator().manual_seed(0))
    assert torch.equal(theta[spec.numel :], other[spec.numel :])  # rho does not depend on it
    variances = spec.unflatten(family.initial_variances(network, spec)[: spec.numel])
    for name, weight in network.named_parameters():
        assert len(variances[name].unique()) == 1
        torch.testing.assert_close(variances[name].mean(), weight.detach().square().mean())
    assert float(variances["layers.0.weight"].mean()) > 0
    assert not variances["layers.1.bias"].any()


@pytest.mark.parametrize("start", [1e-6, 0.01, 0.5])
def test_scales_start_where_they_are_told_to(start: float, network: MLP, rng: Generator) -> None:
    spec, family = WeightSpec.of(network), GaussianFamily(GaussianSettings(initial_std=start))
    scale = family.at(torch.zeros(2 * spec.numel), spec).scale
    torch.testing.assert_close(scale, torch.full((spec.numel,), start))
    theta = family.initial(network, spec, generator=rng)
    assert torch.equal(theta, GaussianFamily().initial(network, spec, generator=Generator().manual_seed(0)))
    rho = theta[spec.numel :].clone().requires_grad_()
    posterior = family.at(torch.cat([theta[: spec.numel], rho]), spec)
    slope = torch.autograd.grad(posterior.scale.sum(), rho)[0]
    information = family.fisher(theta, spec)[spec.numel :]  # that of a scale is 2 / sigma^2
    torch.testing.assert_close(information, (2 * (slope / posterior.scale).square()).detach(), rtol=1e-3, atol=1e-4)


def test_growth_moves_means_and_scales_alike() -> None:
    small, large = WeightSpec.of(MLP((3,), (4,), 2)), WeightSpec.of(MLP((3,), (4,), 5))
    family = GaussianFamily()
    positions: Tensor = family.positions_in(small, large)
    theta, grown = torch.randn(2 * small.numel), torch.zeros(2 * large.numel)
    grown[positions] = theta
    old, new = family.at(theta, small), family.at(grown, large)
    corner = small.positions_in(large)
    assert torch.equal(new.mean[corner], old.mean)
    # elements at other places of a vector may differ in rounding
    torch.testing.assert_close(new.scale[corner], old.scale)


def test_the_mask_marks_the_means() -> None:
    spec = WeightSpec.of(MLP((3,), (), 2))
    assert GaussianFamily().weight_mask(spec).tolist() == [True] * 8 + [False] * 8


def test_the_prior_over_a_number_of_weights_can_be_sampled(rng: Generator) -> None:
    prior = GaussianPrior(2.25).over(3)
    draws = prior.rsample(20000, generator=rng)
    assert draws.shape == (20000, 3)
    assert abs(float(draws.std()) / 1.5 - 1) < 4 / (2 * draws.numel()) ** 0.5
    assert abs(float(draws.mean())) < 4 * 1.5 / draws.numel() ** 0.5
    torch.testing.assert_close(prior.log_prob(draws), GaussianPrior(2.25).log_prob(draws))
