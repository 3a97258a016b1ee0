"""Closed forms against PyTorch's own, and the choice of a rule by the two types."""

import math

import pytest
import torch
from torch import Generator, Tensor
from torch.distributions import Normal, kl_divergence

from metareplay.errors import ConfigError
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.divergences import Divergence, Penalty, kl, replay_divergence, wasserstein2
from metareplay.posteriors.families.dirac import Dirac
from metareplay.posteriors.families.gaussian import GaussianFamily, MeanFieldGaussian
from metareplay.posteriors.priors.gaussian import GaussianPrior


def gaussian(generator: Generator, *shape: int) -> MeanFieldGaussian:
    mean = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return MeanFieldGaussian(mean, torch.rand(*shape, generator=generator, dtype=torch.float64) + 0.05)


def as_normal(q: MeanFieldGaussian) -> Normal:
    return Normal(q.mean, q.scale)


def exact(result: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(7,), (3, 7)])
@pytest.mark.parametrize("variance", [1.0, 0.3, 20.0])
def test_kl_to_the_prior(shape: tuple[int, ...], variance: float, rng: Generator) -> None:
    q = gaussian(rng, *shape)
    prior = Normal(torch.zeros(shape[-1], dtype=torch.float64), math.sqrt(variance))
    result = kl(q, GaussianPrior(variance))
    assert result.shape == shape[:-1]
    exact(result, kl_divergence(as_normal(q), prior).sum(-1))


@pytest.mark.parametrize("shape", [(7,), (3, 7)])
def test_kl_of_two_gaussians(shape: tuple[int, ...], rng: Generator) -> None:
    q, p = gaussian(rng, *shape), gaussian(rng, *shape)
    exact(kl(q, p), kl_divergence(as_normal(q), as_normal(p)).sum(-1))
    exact(kl(p, q), kl_divergence(as_normal(p), as_normal(q)).sum(-1))
    assert kl(q, p).shape == shape[:-1]


def test_a_divergence_from_itself_is_zero(rng: Generator) -> None:
    q = gaussian(rng, 7)
    point = Dirac(q.mean)
    prior_itself = MeanFieldGaussian(torch.zeros(4), torch.full((4,), 2.0))
    assert float(kl(q, q)) == 0
    assert float(wasserstein2(q, q)) == 0
    assert float(wasserstein2(point, point)) == 0
    assert float(kl(prior_itself, GaussianPrior(4.0))) == 0


def test_squared_wasserstein_distance_by_hand() -> None:
    q = MeanFieldGaussian(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.5]))
    p = MeanFieldGaussian(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.1]))
    torch.testing.assert_close(wasserstein2(q, p), torch.tensor(9.0 + 1.0 + 0.16))
    assert wasserstein2(p, q) == wasserstein2(q, p)


def test_points_are_gaussians_without_width(rng: Generator) -> None:
    a, b = torch.randn(2, 3, 5, generator=rng)
    nothing = torch.zeros(3, 5)
    result = wasserstein2(Dirac(a), Dirac(b))
    assert result.shape == (3,)
    torch.testing.assert_close(result, wasserstein2(MeanFieldGaussian(a, nothing), MeanFieldGaussian(b, nothing)))


@pytest.mark.parametrize("kind", ["fkl", "rkl", "w2"])
def test_directions_of_the_replay_divergence(kind: Penalty, rng: Generator) -> None:
    old, new = gaussian(rng, 7), gaussian(rng, 7)
    expected = {
        "fkl": kl_divergence(as_normal(old), as_normal(new)).sum(),
        "rkl": kl_divergence(as_normal(new), as_normal(old)).sum(),
        "w2": ((old.mean - new.mean) ** 2 + (old.scale - new.scale) ** 2).sum(),
    }
    exact(replay_divergence(kind, old, new, 1, generator=torch.Generator()), expected[kind])
    assert not torch.allclose(expected["fkl"], expected["rkl"])


@pytest.mark.parametrize("kind", ["fkl", "rkl", "w2"])
def test_gradients_of_the_replay_divergence(kind: Penalty, rng: Generator) -> None:
    old, start = gaussian(rng, 3), gaussian(rng, 3)

    def distance(mean: Tensor, scale: Tensor) -> Tensor:
        return replay_divergence(kind, old, MeanFieldGaussian(mean, scale), 1, generator=torch.Generator())

    assert torch.autograd.gradcheck(distance, (start.mean.requires_grad_(), start.scale.requires_grad_()))


def test_an_unknown_pair_is_refused_with_what_is_known() -> None:
    with pytest.raises(
        ConfigError, match=r"kl of Dirac from GaussianPrior.*MeanFieldGaussian\|\|GaussianPrior.*@kl\.register"
    ):
        kl(Dirac(torch.zeros(2)), GaussianPrior())
    with pytest.raises(ConfigError, match="wasserstein2 of Dirac from MeanFieldGaussian"):
        wasserstein2(Dirac(torch.zeros(2)), MeanFieldGaussian(torch.zeros(2), torch.ones(2)))


def test_a_new_pair_can_be_registered() -> None:
    divergence = Divergence("count")
    assert not divergence.supports(int, str)

    @divergence.register(int, str)
    def _rule(q: int, p: str) -> Tensor:
        return torch.tensor(float(q * len(p)))

    assert divergence.supports(int, str)
    assert not divergence.supports(str, int)
    assert float(divergence(3, "ab")) == 6
    with pytest.raises(ConfigError, match=r"known are int\|\|str"):
        divergence("ab", 3)


def test_very_small_scales_have_a_finite_divergence() -> None:
    q = GaussianFamily().at(torch.tensor([0.0, -60.0]), WeightSpec(("w",), (torch.Size([1]),)))
    assert float(q.scale) > 0
    assert kl(q, GaussianPrior()).isfinite()
