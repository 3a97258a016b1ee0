"""Samples and closed forms of Gaussian posteriors against Monte Carlo; fixed seeds, tolerance five standard errors."""

import math

import pytest
import torch
from torch import Generator, Tensor
from torch.distributions import Normal

from metareplay.posteriors.divergences import Penalty, kl, replay_divergence
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.priors.gaussian import GaussianPrior

DRAWS = 100_000
ERRORS = 5


def assert_mean_is(draws: Tensor, expected: Tensor) -> None:
    """The mean over the first dimension is within five standard errors, which are small enough to be meaningful."""
    error = draws.std(0) / math.sqrt(len(draws))
    assert (error < 0.02 * (1 + expected.abs())).all()
    assert ((draws.mean(0) - expected).abs() < ERRORS * error).all()


@pytest.fixture
def pair(rng: Generator) -> tuple[MeanFieldGaussian, MeanFieldGaussian]:
    means = torch.randn(2, 4, generator=rng, dtype=torch.float64)
    scales = torch.rand(2, 4, generator=rng, dtype=torch.float64) + 0.5
    return MeanFieldGaussian(means[0], scales[0]), MeanFieldGaussian(means[1], scales[1])


def test_moments_of_samples(pair: tuple[MeanFieldGaussian, MeanFieldGaussian], rng: Generator) -> None:
    q = pair[0]
    draws = q.rsample(DRAWS, generator=rng)
    assert_mean_is(draws, q.mean)
    centred = draws - q.mean
    assert_mean_is(centred.square(), q.scale.square())
    assert_mean_is(centred**3, torch.zeros(4, dtype=torch.float64))
    assert_mean_is(centred**4 / 3, q.scale**4)
    products = centred[:, :-1] * centred[:, 1:]  # independent weights
    assert_mean_is(products, torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("variance", [0.5, 3.0])
def test_kl_to_the_prior(pair: tuple[MeanFieldGaussian, MeanFieldGaussian], variance: float, rng: Generator) -> None:
    q, prior = pair[0], GaussianPrior(variance)
    draws = q.rsample(DRAWS, generator=rng)
    assert_mean_is(q.log_prob(draws) - prior.log_prob(draws), kl(q, prior))


@pytest.mark.parametrize("kind", ["fkl", "rkl"])
def test_kl_in_both_directions(
    pair: tuple[MeanFieldGaussian, MeanFieldGaussian], kind: Penalty, rng: Generator
) -> None:
    old, new = pair
    first, second = (old, new) if kind == "fkl" else (new, old)
    draws = first.rsample(DRAWS, generator=rng)
    assert_mean_is(
        first.log_prob(draws) - second.log_prob(draws),
        replay_divergence(kind, old, new, 1, generator=torch.Generator()),
    )


def test_wasserstein_distance_is_the_cost_of_the_quantile_coupling(
    pair: tuple[MeanFieldGaussian, MeanFieldGaussian], rng: Generator
) -> None:
    old, new = pair
    draws = old.rsample(DRAWS, generator=rng)
    quantiles = Normal(old.mean, old.scale).cdf(draws)
    # the cheapest way to carry one density to the other, weight by weight
    carried = Normal(new.mean, new.scale).icdf(quantiles)
    assert_mean_is(
        (draws - carried).square().sum(-1), replay_divergence("w2", old, new, 1, generator=torch.Generator())
    )


def test_sorted_samples_are_that_far_apart(pair: tuple[MeanFieldGaussian, MeanFieldGaussian], rng: Generator) -> None:
    old, new = pair
    distances = torch.stack(
        [
            (old.rsample(20_000, generator=rng).sort(0).values - new.rsample(20_000, generator=rng).sort(0).values)
            .square()
            .mean(0)
            .sum()
            for _ in range(20)
        ]
    )
    assert_mean_is(distances, replay_divergence("w2", old, new, 1, generator=torch.Generator()))
