"""A flow's density integrates to one, and variational inference with it finds posteriors that are known."""

from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor

from metareplay.optimisers import adam
from metareplay.posteriors.divergences import monte_carlo_kl
from metareplay.posteriors.families.flow import Flow, couplings
from metareplay.posteriors.families.gaussian import MeanFieldGaussian


class Density:
    """An unnormalised log-density as a distribution to be matched."""

    def __init__(self, log_density: Callable[[Tensor], Tensor]) -> None:
        self.log_density = log_density

    def log_prob(self, weights: Tensor) -> Tensor:
        return self.log_density(weights)


def wild_flow(weights: int, seed: int, strength: float = 1.5) -> Flow:
    layers, rng = couplings(weights, 4, (8,), "tanh"), Generator().manual_seed(seed)
    parameters = strength * layers.units * torch.randn(layers.spec.numel, generator=rng)
    return Flow(torch.zeros(weights).double(), torch.ones(weights).double(), parameters.double(), layers)


def test_the_density_integrates_to_one_on_a_grid() -> None:
    for seed in range(2):
        flow = wild_flow(2, seed)
        samples = flow.rsample(2000, generator=Generator().manual_seed(9))
        low, high = samples.amin(0) - 3, samples.amax(0) + 3
        axes = [torch.linspace(float(a), float(b), 400, dtype=torch.float64) for a, b in zip(low, high, strict=True)]
        cell = (axes[0][1] - axes[0][0]) * (axes[1][1] - axes[1][0])
        total = float(flow.log_prob(torch.cartesian_prod(*axes)).exp().sum() * cell)
        assert abs(total - 1) < 0.01


def test_the_density_integrates_to_one_by_importance_sampling(rng: Generator) -> None:
    flow = wild_flow(5, 0, strength=0.8)
    reached = flow.rsample(5000, generator=rng)
    wide = MeanFieldGaussian(reached.mean(0), 1.3 * reached.std(0))
    weights = wide.rsample(100_000, generator=rng)
    ratios = (flow.log_prob(weights) - wide.log_prob(weights)).exp()
    error = float(ratios.std()) / len(ratios) ** 0.5
    assert error < 0.05
    assert abs(float(ratios.mean()) - 1) < 4 * error


def fitted(target: Density, weights: int, scale: float, steps: int, rng: Generator, *, coupled: bool = True) -> Flow:
    """Minimise KL(q || target) by Monte Carlo, as in training with a prior; uncoupled it is a mean-field Gaussian."""
    layers = couplings(weights, 4, (16,), "tanh")
    mean, rho = torch.zeros(weights, requires_grad=True), torch.full((weights,), scale).log().requires_grad_()
    own = (coupled * layers.initial_stds * torch.randn(layers.spec.numel, generator=rng)).requires_grad_()
    optimiser = adam([mean, rho, own] if coupled else [mean, rho], 0.02)

    def flow() -> Flow:
        return Flow(mean, rho.exp(), own * layers.units, layers)

    for _ in range(steps):
        optimiser.zero_grad()
        monte_carlo_kl(flow(), target, 32, generator=rng).backward()
        optimiser.step()
    return Flow(*(tensor.detach() for tensor in (mean, rho.exp(), own * layers.units)), layers)


@pytest.mark.slow
def test_a_correlated_gaussian_is_recovered(rng: Generator) -> None:
    covariance = torch.tensor([[1.0, 0.8, 0.0], [0.8, 1.0, -0.3], [0.0, -0.3, 0.5]])
    mean = torch.tensor([1.0, -1.0, 0.5])
    exact = torch.distributions.MultivariateNormal(mean, covariance)
    flow = fitted(Density(exact.log_prob), 3, 0.5, 400, rng)
    samples = flow.rsample(20_000, generator=rng)
    torch.testing.assert_close(samples.mean(0), mean, atol=0.15, rtol=0)
    torch.testing.assert_close(samples.T.cov(), covariance, atol=0.2, rtol=0)
    # a mean-field Gaussian has at least 0.6 here
    assert float(monte_carlo_kl(flow, exact, 20_000, generator=rng)) < 0.15


@pytest.mark.slow
def test_two_modes_are_found_where_a_gaussian_finds_one(rng: Generator) -> None:
    """The product of two weights is seen: w1 w2 = 2, so (w1, w2) and (-w1, -w2) explain it equally well."""
    target = Density(lambda w: -0.5 * ((w[..., 0] * w[..., 1] - 2) / 0.8) ** 2 - 0.5 * w.square().sum(-1) / 4)
    flow, gaussian = (fitted(target, 2, 1.5, 500, rng, coupled=coupled) for coupled in (True, False))
    samples = flow.rsample(4000, generator=rng)
    share = float((samples[:, 0] > 0).float().mean())
    assert 0.15 < share < 0.85  # both signs
    assert float(((samples.prod(-1) - 2).abs() < 1.6).float().mean()) > 0.75  # and both explain what was seen
    divergences = [float(monte_carlo_kl(q, target, 4000, generator=rng)) for q in (flow, gaussian)]
    assert divergences[0] + 0.3 < divergences[1]
