"""Earlier posteriors as priors: the last one through its samples, a mixture of all, and their powers."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor
from torch.distributions import Normal

from metareplay.errors import ConfigError
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.base import HasLogProb, Prior
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.families.implicit import Implicit, ImplicitFamily, ImplicitSettings
from metareplay.posteriors.matching.direct import prior_matching
from metareplay.posteriors.matching.ssge import SSGEMatching, SSGESettings
from metareplay.posteriors.matching.ssge_score import ssge_score
from metareplay.posteriors.priors.earlier import LastPosterior, MixturePrior, with_fixed_prior
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.posteriors.priors.tempered import Tempered, tempered

SPEC = WeightSpec.of(MLP((1,), (), 2))  # 4 weights: w1, w2, b1, b2
NEW = torch.tensor([False, True, False, True])  # the second output came later
FIXED = GaussianPrior(4.0)
MANY = {"ssge_samples": 500, "ssge_width": 2.0, "ssge_ratio": 0.999}


def ssge(**settings: Any) -> SSGEMatching:
    return SSGEMatching(SSGESettings.model_validate({"ssge_samples": 200, "ssge_ratio": 0.99, **settings}))


def linear(matrix: Tensor, offset: Tensor) -> Implicit:
    """w = A z + b is Gaussian: N(b, A A')."""
    settings = ImplicitSettings(generator_hidden=(), latent_size=matrix.shape[1], support_noise=None)
    return ImplicitFamily(settings).at(torch.cat([matrix.flatten(), offset]).requires_grad_(), SPEC)


LAST = LastPosterior(
    linear(torch.diag(torch.tensor([0.5, 9.0, 0.8, 9.0])), torch.tensor([1.0, 9.0, -1.0, 9.0])), FIXED, NEW
)
"""Old weights are N(1, 0.25) and N(-1, 0.64); what the last posterior says of the new ones is wrong on purpose."""


def gradient(prior: Prior, weights: Tensor, seed: int = 0, **settings: Any) -> Tensor:
    """n times the gradient of the cross-entropy at each sample: the prior's score with the opposite sign."""
    return -ssge(**settings).sampled_prior(prior, weights, generator=Generator().manual_seed(seed))[1]


def test_old_weights_are_sampled_from_the_last_posterior_and_new_ones_from_the_fixed_prior(rng: Generator) -> None:
    samples = LAST.rsample(10_000, generator=rng)
    assert not samples.requires_grad
    torch.testing.assert_close(samples.mean(0), torch.tensor([1.0, 0.0, -1.0, 0.0]), atol=0.06, rtol=0)
    torch.testing.assert_close(samples.std(0), torch.tensor([0.5, 2.0, 0.8, 2.0]), atol=0, rtol=0.04)
    assert torch.corrcoef(samples.T).fill_diagonal_(0).abs().max() < 0.05


def test_a_new_weight_has_the_exact_score_of_the_fixed_prior(rng: Generator) -> None:
    weights = torch.randn(6, 4, generator=rng)
    torch.testing.assert_close(gradient(LAST, weights)[:, NEW], weights[:, NEW] / FIXED.variance)


def test_the_score_of_an_old_weight_knows_nothing_of_new_ones(rng: Generator) -> None:
    """Neither their values at the samples nor what the last posterior would say of them."""
    weights = torch.randn(6, 4, generator=rng)
    far = torch.where(NEW, weights + 100, weights)
    torch.testing.assert_close(gradient(LAST, far)[:, ~NEW], gradient(LAST, weights)[:, ~NEW])


def test_the_score_of_old_weights_is_that_of_the_gaussian_they_follow(rng: Generator) -> None:
    """At samples of a Gaussian shifted by half a standard deviation: the mean of ten estimates is within 10 %."""
    centre, spread = torch.tensor([1.0, 0.0, -1.0, 0.0]), torch.tensor([0.5, 2.0, 0.8, 2.0])
    weights = centre + spread * (0.7 * torch.randn(200, 4, generator=rng) + 0.5)
    actual = torch.stack([gradient(LAST, weights, seed, **MANY)[:, ~NEW] for seed in range(10)]).mean(0)
    exact = ((weights - centre) / spread.square())[:, ~NEW]
    assert (actual - exact).norm() < 0.1 * exact.norm()


def test_the_cross_entropy_of_two_gaussians_has_its_analytic_gradient(rng: Generator) -> None:
    """-E log N(w; m, S) for w = A z + b has gradients S^-1 A and S^-1 (b - m); ten estimates average to within 10 %."""
    centre, variance = torch.tensor([1.0, 0.0, -1.0, 0.0]), torch.tensor([0.25, 4.0, 0.64, 4.0])
    matrix = torch.diag(torch.tensor([0.4, 1.5, 0.7, 1.2])) + 0.1 * torch.randn(4, 4, generator=rng)
    q = linear(matrix, centre + 0.3 * variance.sqrt())
    exact = torch.cat([(matrix / variance.unsqueeze(1)).flatten(), 0.3 / variance.sqrt()])
    gradients = []
    for _ in range(10):
        weights = q.rsample(1000, generator=rng)
        score = ssge(**MANY).sampled_prior(LAST, weights.detach(), generator=rng)[1]
        gradients.append(torch.autograd.grad(-(score * weights).sum(1).mean(), q.theta)[0])
    actual = torch.stack(gradients).mean(0)
    assert (actual - exact).norm() < 0.1 * exact.norm()


def test_the_prior_term_is_the_entropy_and_the_cross_entropy() -> None:
    q = linear(torch.eye(4), torch.zeros(4))
    actual = ssge(prior_samples=5).term(q, LAST, generator=Generator().manual_seed(3))
    again = Generator().manual_seed(3)
    weights = q.rsample(200, generator=again)
    score = ssge_score(q.rsample(200, generator=again), weights, ratio=0.99, around_gaussian=True)
    score = score - ssge().sampled_prior(LAST, weights.detach(), generator=again)[1]
    expected = (score * weights).sum(1).mean()
    torch.testing.assert_close(*(torch.autograd.grad(term, q.theta)[0] for term in (actual, expected)))


def test_nothing_pulls_where_the_posterior_is_the_prior(rng: Generator) -> None:
    """Ten samples say little about a density, but equally little about both: 300 draws average to zero."""
    matrix, offset = torch.diag(torch.tensor([0.5, 2.0, 0.8, 1.0])), torch.tensor([1.0, 0.0, -1.0, 0.0])
    q, prior = linear(matrix, offset), LastPosterior(linear(matrix, offset), FIXED, torch.zeros(4, dtype=torch.bool))
    few = ssge(ssge_samples=10, ssge_width=1.0)
    terms = (few.term(q, prior, generator=rng) for _ in range(300))
    actual = torch.stack([torch.autograd.grad(term, q.theta)[0] for term in terms])
    assert (actual.mean(0).abs() < 4 * actual.std(0) / 300**0.5).all()


def test_the_value_is_the_cross_entropy_of_the_new_weights(rng: Generator) -> None:
    weights = torch.randn(6, 4, generator=rng)
    torch.testing.assert_close(
        ssge().sampled_prior(LAST, weights, generator=rng)[0], -FIXED.log_prob(weights[:, NEW]).mean()
    )
    no_head = LastPosterior(LAST.last, FIXED, torch.zeros(4, dtype=torch.bool))
    assert float(ssge().sampled_prior(no_head, weights, generator=rng)[0]) == 0


def test_a_prior_that_is_not_finite_has_no_finite_term(rng: Generator) -> None:
    broken = LastPosterior(linear(torch.full((4, 4), float("nan")), torch.zeros(4)), FIXED, NEW)
    assert not ssge(prior_samples=3).term(linear(torch.eye(4), torch.zeros(4)), broken, generator=rng).isfinite()


def test_a_gaussian_needs_a_density(rng: Generator) -> None:
    with pytest.raises(ConfigError, match="needs a prior with a density; LastPosterior has none"):
        prior_matching(MeanFieldGaussian(torch.zeros(4), torch.ones(4)), LAST, 3, generator=rng)


def test_a_prior_that_can_only_be_sampled(rng: Generator) -> None:
    """Without new weights nothing needs to be known of it but samples."""

    class Samples:
        def rsample(self, n: int, *, generator: Generator) -> Tensor:
            return LAST.last.rsample(n, generator=generator)

    weights, whole = torch.randn(6, 4, generator=rng), LastPosterior(LAST.last, FIXED, torch.zeros(4, dtype=torch.bool))
    torch.testing.assert_close(gradient(Samples(), weights), gradient(whole, weights))
    with pytest.raises(ConfigError, match="Samples cannot be raised to a power"):
        tempered(Samples(), 0.5)


# A mixture of the fixed prior and earlier posteriors.

EARLIER = MeanFieldGaussian(torch.tensor([[0.5, -1.0], [2.0, 0.0]]), torch.tensor([[0.3, 0.7], [1.0, 0.2]]))


def test_the_density_of_a_mixture_by_hand() -> None:
    actual = MixturePrior(FIXED, EARLIER, 2, 0.3).log_prob(torch.tensor([[0.4, -0.5], [-3.0, 3.0]]))
    for weights, log_density in zip([(0.4, -0.5), (-3.0, 3.0)], actual, strict=True):
        density = 0.7 * _product([0.0, 0.0], [2.0, 2.0], weights)
        density += 0.15 * _product([0.5, -1.0], [0.3, 0.7], weights) + 0.15 * _product([2.0, 0.0], [1.0, 0.2], weights)
        assert float(log_density) == pytest.approx(float(density.log()), rel=1e-5)


def _product(means: list[float], scales: list[float], weights: tuple[float, ...]) -> Tensor:
    parts = [
        Normal(mean, scale).log_prob(torch.tensor(w)).exp()
        for mean, scale, w in zip(means, scales, weights, strict=True)
    ]
    return parts[0] * parts[1]


def test_far_from_everything_the_density_is_finite() -> None:
    far = torch.full((1, 2), 1e3)
    log_density = MixturePrior(FIXED, EARLIER, 2, 0.3).log_prob(far)
    torch.testing.assert_close(log_density, FIXED.log_prob(far) + torch.tensor(0.7).log())  # the broadest part remains


def test_monte_carlo_prior_matching_is_the_kl(rng: Generator) -> None:
    """With one earlier posterior of nearly all the mass the KL and its gradient are known."""
    mean, scale = torch.tensor([0.1, -0.4], requires_grad=True), torch.tensor([0.4, 0.5], requires_grad=True)
    q, p = MeanFieldGaussian(mean, scale), MeanFieldGaussian(EARLIER.mean[0], EARLIER.scale[0])
    one = MixturePrior(FIXED, MeanFieldGaussian(p.mean.unsqueeze(0), p.scale.unsqueeze(0)), 1, 1 - 1e-9)
    exact, estimate = prior_matching(q, p, 1, generator=rng), prior_matching(q, one, 40_000, generator=rng)
    assert float(estimate.detach()) == pytest.approx(float(exact.detach()), abs=0.03)
    actual, expected = (torch.cat(torch.autograd.grad(term, (mean, scale))) for term in (estimate, exact))
    torch.testing.assert_close(actual, expected, atol=0.15, rtol=0)


def test_weights_that_came_later_follow_the_fixed_prior() -> None:
    new = torch.tensor([[False, True], [False, False]])
    actual = with_fixed_prior(EARLIER, FIXED, new)
    torch.testing.assert_close(actual.mean, torch.tensor([[0.5, 0.0], [2.0, 0.0]]))
    torch.testing.assert_close(actual.scale, torch.tensor([[0.3, 2.0], [1.0, 0.2]]))


# Tempering of the prior alone.

POWERS = pytest.mark.parametrize("power", [0.25, 0.5, 3.0])
POSTERIOR = MeanFieldGaussian(torch.tensor([0.5, -1.0]), torch.tensor([0.3, 0.7]))


@POWERS
@pytest.mark.parametrize(
    "prior", [FIXED, MeanFieldGaussian(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 2.0]))], ids=["fixed", "posterior"]
)
def test_a_power_of_a_gaussian_is_a_broader_gaussian(
    prior: GaussianPrior | MeanFieldGaussian, power: float, rng: Generator
) -> None:
    weights, broader = torch.randn(9, 2, generator=rng), tempered(prior, power)
    assert type(broader) is type(prior)
    assert isinstance(broader, HasLogProb)
    constant = broader.log_prob(weights) - power * prior.log_prob(weights)  # -log Z
    torch.testing.assert_close(constant, constant[:1].expand(9), atol=1e-4, rtol=0)
    grid = torch.linspace(-60, 60, 24_001, dtype=torch.float64)
    one = (
        GaussianPrior(prior.variance)
        if isinstance(prior, GaussianPrior)
        else MeanFieldGaussian(prior.mean[:1], prior.scale[:1])
    )
    mass = (tempered(one, power).log_prob(grid.unsqueeze(1)).exp() * (grid[1] - grid[0])).sum()  # type: ignore[union-attr]
    assert float(mass) == pytest.approx(1, abs=1e-3)


@POWERS
def test_the_kl_to_a_tempered_gaussian(power: float, rng: Generator) -> None:
    """KL(q || p^beta) = E_q[log q - beta log p] + log Z, with log Z of a Gaussian by hand."""
    actual = prior_matching(POSTERIOR, tempered(FIXED, power), 1, generator=rng)
    two_pi = torch.tensor(2 * torch.pi)
    negative_entropy = -(POSTERIOR.scale.log() + 0.5 * two_pi.log() + 0.5).sum()
    square = (POSTERIOR.mean.square() + POSTERIOR.scale.square()) / FIXED.variance
    log_prior = (-0.5 * square - 0.5 * (two_pi * FIXED.variance).log()).sum()
    log_z = 2 * (0.5 * (two_pi * FIXED.variance / power).log() - 0.5 * power * (two_pi * FIXED.variance).log())
    torch.testing.assert_close(actual, negative_entropy - power * log_prior + log_z)


@POWERS
def test_other_densities_are_scaled(power: float, rng: Generator) -> None:
    mixture, weights = MixturePrior(FIXED, EARLIER, 2, 0.3), torch.randn(9, 2, generator=rng)
    actual = tempered(mixture, power)
    assert isinstance(actual, Tempered)
    torch.testing.assert_close(actual.log_prob(weights), power * mixture.log_prob(weights))


@POWERS
def test_the_score_of_a_sampled_prior_is_scaled(power: float, rng: Generator) -> None:
    weights, actual = torch.randn(6, 4, generator=rng), tempered(LAST, power)
    assert isinstance(actual, LastPosterior)
    torch.testing.assert_close(gradient(actual, weights), power * gradient(LAST, weights))
    with pytest.raises(ConfigError, match=r"cannot be sampled; set posterior\.prior_power to 1"):
        actual.rsample(2, generator=rng)


def test_the_first_power_is_the_prior_itself() -> None:
    for prior in (FIXED, EARLIER, LAST, MixturePrior(FIXED, EARLIER, 2, 0.3)):
        assert tempered(prior, 1.0) is prior
