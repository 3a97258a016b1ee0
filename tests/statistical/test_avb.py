"""Adversarial Variational Bayes against known log-density ratios. Seeds are fixed; each test states its tolerances."""

from math import log

import pytest
import torch
from torch import Generator, Tensor, nn

from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.base import MatchingContext, Posterior, Prior
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.families.implicit import Implicit, ImplicitFamily, ImplicitSettings
from metareplay.posteriors.matching.avb import AVBMatching, AVBSettings
from metareplay.posteriors.priors.gaussian import GaussianPrior

MATRIX, OFFSET, VARIANCE = torch.tensor([[0.9, 0.0], [0.0, 0.6]]), torch.tensor([0.4, -0.5]), 1.5


class OnlySamples:
    """A prior without a density."""

    def __init__(self, source: MeanFieldGaussian) -> None:
        self.source = source

    def rsample(self, n: int, *, generator: Generator) -> Tensor:
        return self.source.rsample(n, generator=generator)


def linear(size: int) -> ImplicitFamily:
    """w = A z + b is Gaussian: N(b, A A')."""
    return ImplicitFamily(ImplicitSettings(generator_hidden=(), latent_size=size, support_noise=None))


def posterior_of(matrix: Tensor, offset: Tensor = OFFSET, **given: object) -> tuple[AVBSettings, Implicit]:
    base = {
        "avb_hidden": (20,),
        "avb_activation": "tanh",
        "avb_batch_size": 500,
        "avb_steps": 300,
        "prior_samples": 2000,
    }
    spec = WeightSpec.of(nn.Linear(len(matrix) - 1, 1))
    return AVBSettings.model_validate({**base, **given}), linear(len(matrix)).at(
        torch.cat([matrix.flatten(), offset]), spec
    )


def learned(settings: AVBSettings, q: Posterior, p: Prior, rng: Generator, weights: int = 2) -> AVBMatching:
    matching = AVBMatching(settings, MatchingContext(weights, 0.02, None, None, rng))
    matching.learn(q, p, generator=rng)
    return matching


def exact_kl(matrix: Tensor) -> float:
    covariance = matrix @ matrix.T
    return float(
        0.5 * ((covariance.trace() + OFFSET.square().sum()) / VARIANCE - 2 - covariance.logdet() + 2 * log(VARIANCE))
    )


def log_ratio(weights: Tensor) -> Tensor:
    """log q - log p at these weights; (n, 2) -> (n,)."""
    return MeanFieldGaussian(OFFSET, MATRIX.diag()).log_prob(weights) - GaussianPrior(VARIANCE).log_prob(weights)


@pytest.mark.parametrize("by_samples", [False, True], ids=["density", "samples-alone"])
def test_the_discriminator_is_the_log_ratio(by_samples: bool, rng: Generator) -> None:
    """At samples of q: RMSE below 0.25, where the ratio's deviation is 0.68; the mean within 0.15 of the KL, 0.55."""
    settings, q = posterior_of(MATRIX, avb_contrast_samples=100 if by_samples else None)
    prior = GaussianPrior(VARIANCE)
    p: Prior = OnlySamples(prior.over(2)) if by_samples else prior  # without a density the contrast is left out
    matching = learned(settings, q, p, rng)
    weights = q.rsample(2000, generator=rng)
    actual, exact = matching.discriminator(weights).detach(), log_ratio(weights)
    assert float((actual - exact).square().mean().sqrt()) < 0.25
    assert float(matching.term(q, p, generator=rng)) == pytest.approx(exact_kl(MATRIX), abs=0.15)


def test_the_adaptive_contrast_leaves_only_what_no_gaussian_has(rng: Generator) -> None:
    """A q with independent weights is its own contrast: ratio within 0.15 of 0, term within 0.15 of the KL."""
    settings, q = posterior_of(MATRIX, avb_contrast_samples=2000)
    prior = GaussianPrior(VARIANCE)
    matching = learned(settings, q, prior, rng)
    weights = q.rsample(2000, generator=rng)
    assert float(matching.discriminator(weights).detach().square().mean().sqrt()) < 0.15
    assert float(matching.term(q, prior, generator=rng)) == pytest.approx(exact_kl(MATRIX), abs=0.15)


def test_the_contrast_misses_correlations_and_the_discriminator_adds_them(rng: Generator) -> None:
    """With correlation rho, log q - log r has the mean -0.5 log(1 - rho^2); the term is the KL within 0.15."""
    matrix = torch.tensor([[0.9, 0.0], [0.48, 0.36]])  # covariance [[0.81, 0.432], [0.432, 0.36]], rho = 0.8
    settings, q = posterior_of(matrix, avb_contrast_samples=2000, prior_samples=4000)
    prior = GaussianPrior(VARIANCE)
    matching = learned(settings, q, prior, rng)
    weights = q.rsample(4000, generator=rng)
    contrast = MeanFieldGaussian(OFFSET, torch.tensor([0.9, 0.6]))
    actual = float(matching.discriminator(weights).detach().mean())
    assert actual == pytest.approx(-0.5 * log(1 - 0.8**2), abs=0.15)  # 0.51
    without = float((contrast.log_prob(weights) - prior.log_prob(weights)).mean())
    assert without < exact_kl(matrix) - 0.3
    assert float(matching.term(q, prior, generator=rng)) == pytest.approx(exact_kl(matrix), abs=0.15)


def test_with_batch_statistics_the_ratio_is_that_of_the_whole_batch(rng: Generator) -> None:
    """Mean and deviation determine a Gaussian batch, so all samples share a logit: the sum of their log-ratios.

    Batches of 3, after 1,000 steps: the mean over batches of q is within 35 % of three times the KL, the term within
    35 % of the KL.
    """
    settings, q = posterior_of(
        MATRIX,
        avb_batch_statistics=True,
        avb_batch_size=3,
        avb_steps=1000,
        avb_contrast_samples=None,
        avb_learning_rate=0.005,
        prior_samples=3,
    )
    prior = GaussianPrior(VARIANCE)
    matching = learned(settings, q, prior, rng)
    actual = torch.stack([matching.discriminator(q.rsample(3, generator=rng)).detach().mean() for _ in range(200)])
    assert float(actual.mean()) == pytest.approx(3 * exact_kl(MATRIX), rel=0.35)
    terms = torch.stack([matching.term(q, prior, generator=rng) for _ in range(200)]).detach()
    assert float(terms.mean()) == pytest.approx(exact_kl(MATRIX), rel=0.35)


def test_with_batch_statistics_and_contrast_the_term_is_the_kl(rng: Generator) -> None:
    """The contrast's batches have the same statistics as q's, so nothing is counted twice: within 0.2 of the KL."""
    given = {"avb_contrast_samples": 2000, "avb_batch_size": 50, "avb_learning_rate": 0.003, "prior_samples": 50}
    settings, q = posterior_of(MATRIX, avb_batch_statistics=True, **given)
    prior = GaussianPrior(VARIANCE)
    matching = learned(settings, q, prior, rng)
    actual = torch.stack([matching.term(q, prior, generator=rng) for _ in range(50)])
    assert float(actual.mean()) == pytest.approx(exact_kl(MATRIX), abs=0.2)


@pytest.mark.parametrize(("contrast", "size"), [(None, 2), (2000, 1), (2000, 2)])
def test_a_chunked_discriminator_is_the_log_ratio(contrast: int | None, size: int, rng: Generator) -> None:
    """Three weights in three chunks, or in two of which one is half empty; the first and last weights correlate (0.8).

    At samples of q: RMSE below 0.25, where the ratio's standard deviation is above 0.7; the term within 0.15 of the KL,
    1.08.
    """
    matrix, offset = torch.tensor([[0.9, 0.0, 0.0], [0.0, 0.8, 0.0], [0.6, 0.0, 0.45]]), torch.tensor([0.4, -0.5, 0.3])
    steps, rate = (400, 0.02) if contrast else (600, 0.04)
    settings, q = posterior_of(
        matrix, offset, avb_contrast_samples=contrast, avb_chunk_size=size, avb_steps=steps, avb_learning_rate=rate
    )
    prior = GaussianPrior(VARIANCE)
    matching = learned(settings, q, prior, rng, weights=3)
    weights = q.rsample(2000, generator=rng).detach()
    density = torch.distributions.MultivariateNormal(offset, scale_tril=matrix).log_prob(weights)
    against = MeanFieldGaussian(offset, matrix.square().sum(1).sqrt()) if contrast else prior
    exact, actual = density - against.log_prob(weights), matching.discriminator(weights).detach()
    assert float(exact.std()) > 0.7
    assert float((actual - exact).square().mean().sqrt()) < 0.25
    kl = float((density - prior.log_prob(weights)).mean())
    assert float(matching.term(q, prior, generator=rng)) == pytest.approx(kl, abs=0.15)


@pytest.mark.parametrize("contrast", [None, 200])
def test_the_prior_alone_makes_the_posterior_the_prior(contrast: int | None, rng: Generator) -> None:
    """From spreads of 0.4 to the prior's variance within 25 %, means to within 0.2 of zero."""
    given = {"avb_batch_size": 100, "avb_steps": 2, "avb_learning_rate": 0.02, "prior_samples": 50}
    settings, _ = posterior_of(MATRIX, avb_contrast_samples=contrast, **given)
    family, spec, prior = linear(2), WeightSpec.of(nn.Linear(1, 1)), GaussianPrior(VARIANCE)
    theta = torch.cat([0.4 * torch.eye(2).flatten(), OFFSET]).requires_grad_()
    matching = AVBMatching(settings, MatchingContext(2, 0.01, None, None, rng))
    optimiser = torch.optim.Adam([theta], lr=0.02)
    actual = []
    for step in range(250):
        q = family.at(theta, spec)
        matching.learn(q, prior, generator=rng)
        optimiser.zero_grad()
        matching.term(q, prior, generator=rng).backward()
        optimiser.step()
        if step >= 170:
            actual.append(theta.detach().clone())
    matrix, offset = torch.stack(actual).mean(0).split([4, 2])
    matrix = matrix.view(2, 2)
    assert (matrix @ matrix.T - VARIANCE * torch.eye(2)).abs().max() < 0.25 * VARIANCE
    assert offset.abs().max() < 0.2


def test_with_the_mean_alone_the_published_term_is_a_batch_of_one_judged_like_many(rng: Generator) -> None:
    """Posterior and prior differ in their means alone: the term is not the KL but three times that, for batches of 3.

    The discriminator learns the ratio of a whole batch from its mean. In the generator's step a single sample is its
    own mean, and the logit is not divided: within 35 % of three times the KL.
    """
    matrix, given = VARIANCE**0.5 * torch.eye(2), {"avb_batch_size": 3, "avb_steps": 1000, "prior_samples": 1}
    settings, q = posterior_of(
        matrix, avb_batch_statistics="mean", avb_contrast_samples=None, avb_learning_rate=0.005, **given
    )
    prior = GaussianPrior(VARIANCE)
    matching = learned(settings, q, prior, rng)
    kl = float(OFFSET.square().sum()) / (2 * VARIANCE)
    terms = torch.stack([matching.term(q, prior, generator=rng) for _ in range(1000)]).detach()
    assert float(terms.mean()) == pytest.approx(3 * kl, rel=0.35)
