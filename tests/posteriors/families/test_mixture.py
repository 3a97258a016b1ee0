"""Ensembles as posteriors: which members samples come from, and their divergences."""

import pytest
import torch
from torch import Generator, Tensor

from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.divergences import kl, wasserstein2
from metareplay.posteriors.families.dirac import Dirac, DiracFamily
from metareplay.posteriors.families.gaussian import GaussianFamily, MeanFieldGaussian
from metareplay.posteriors.families.mixture import Mixture, MixtureFamily, members_of, redrawn
from metareplay.posteriors.local_reparametrisation import run_locally
from metareplay.posteriors.matching.direct import prior_matching
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.posteriors.settings import NetworkStartSettings

MEANS = torch.tensor([[-2.0, 1.0], [0.0, 0.0], [3.0, -1.0]])
SCALES = torch.tensor([[0.5, 0.1], [1.0, 0.2], [0.2, 2.0]])
KEEPING = GaussianFamily(NetworkStartSettings(keep_network_init=True))


@pytest.fixture
def gaussians() -> Mixture:
    return Mixture(MeanFieldGaussian(MEANS, SCALES), 3)


def test_samples_come_from_the_members_in_turn(gaussians: Mixture, rng: Generator) -> None:
    count = 6000
    samples = gaussians.rsample(count, generator=rng)
    assert samples.shape == (count, 2)
    for member in range(3):
        own = samples[member::3]
        error = SCALES[member] / len(own) ** 0.5
        assert ((own.mean(0) - MEANS[member]).abs() < 4 * error).all()
        assert ((own.std(0) / SCALES[member] - 1).abs() < 4 / (2 * len(own)) ** 0.5).all()
    mean = MEANS.mean(0)
    variance = (SCALES.square() + (MEANS - mean).square()).mean(0)  # the variance of the mixture
    torch.testing.assert_close(samples.mean(0), mean, rtol=0, atol=4 * float(variance.max() / count) ** 0.5)
    torch.testing.assert_close(samples.var(0), variance, rtol=0.1, atol=0)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_point_members_take_turns(count: int, rng: Generator) -> None:
    samples = Mixture(Dirac(MEANS), 3).rsample(count, generator=rng)
    assert torch.equal(samples, MEANS[torch.arange(count) % 3])


def test_several_mixtures_keep_to_their_own_members(rng: Generator) -> None:
    thetas = torch.stack([MEANS, MEANS + 10])  # (T, M, W)
    samples = Mixture(Dirac(thetas), 3).rsample(6, generator=rng)
    assert torch.equal(samples, torch.stack([thetas[:, index % 3] for index in range(6)]))


def test_divergences_are_means_over_members(gaussians: Mixture) -> None:
    other = Mixture(MeanFieldGaussian(MEANS + 0.3, 1.5 * SCALES), 3)
    for divergence in (kl, wasserstein2):
        single = [divergence(_member(gaussians, index), _member(other, index)) for index in range(3)]
        torch.testing.assert_close(divergence(gaussians, other), torch.stack(single).mean())


def _member(mixture: Mixture, index: int) -> MeanFieldGaussian:
    assert isinstance(mixture.components, MeanFieldGaussian)
    return MeanFieldGaussian(mixture.components.mean[index], mixture.components.scale[index])


def _log_density(mixture: Mixture, weights: Tensor) -> Tensor:
    return (
        torch.stack([_member(mixture, index).log_prob(weights) for index in range(3)]).logsumexp(0)
        - torch.tensor(3.0).log()
    )


def test_prior_matching_bounds_the_divergence_of_the_mixture(gaussians: Mixture, rng: Generator) -> None:
    prior = GaussianPrior(2.0)
    term = prior_matching(gaussians, prior, 1, generator=rng)
    single = [kl(_member(gaussians, index), prior) for index in range(3)]
    torch.testing.assert_close(term, torch.stack(single).mean())
    weights = gaussians.rsample(30_000, generator=rng)
    true = (_log_density(gaussians, weights) - prior.log_prob(weights)).mean()
    assert float(true) + 0.5 < float(term)  # these members hardly overlap: the gap is near log 3
    same = Mixture(MeanFieldGaussian(MEANS[:1].expand(3, -1), SCALES[:1].expand(3, -1)), 3)
    torch.testing.assert_close(prior_matching(same, prior, 1, generator=rng), kl(_member(same, 0), prior))


def test_kl_bounds_that_of_the_mixtures(gaussians: Mixture, rng: Generator) -> None:
    other = Mixture(MeanFieldGaussian(MEANS.flip(0), SCALES.flip(0)), 3)  # the same members in another order
    weights = gaussians.rsample(3000, generator=rng)
    torch.testing.assert_close(_log_density(gaussians, weights), _log_density(other, weights))
    assert float(kl(gaussians, other)) > 1  # the bound sees members, not their mixture


@pytest.mark.parametrize("base", [DiracFamily(), KEEPING], ids=lambda base: base.name)
def test_members_start_apart_and_vary_alike(base: DiracFamily | GaussianFamily) -> None:
    network = MLP((30,), (40,), 7)
    spec, family = WeightSpec.of(network), MixtureFamily(base, 4, "test")
    theta = family.initial(network, spec, generator=Generator().manual_seed(1))
    weights = theta[family.weight_mask(spec)].view(4, -1)  # (M, W)
    assert torch.equal(weights[0], spec.flatten(network))
    for part in weights.split(spec.sizes, dim=-1):
        if part[0].any():
            assert (torch.corrcoef(part) - torch.eye(4)).abs().max() < 4 / part.shape[1] ** 0.5
            torch.testing.assert_close(part.std(1), part[0].std().expand(4), rtol=0.2, atol=0)
        else:
            assert not part.any()  # biases start at zero in every member


def test_constant_tensors_stay_constant(rng: Generator) -> None:
    norm = torch.nn.LayerNorm(5)
    other = redrawn(norm, rng)
    assert torch.equal(other.weight, torch.ones(5))
    assert torch.equal(other.bias, torch.zeros(5))


def test_any_posterior_is_its_only_member(gaussians: Mixture) -> None:
    point = Dirac(MEANS[0])
    assert members_of(point) == (point, 1)
    assert members_of(gaussians) == (gaussians.components, 3)


def test_local_samples_of_members_have_each_members_moments(rng: Generator) -> None:
    network = MLP((2,), (3,), 2, "tanh")
    spec = WeightSpec.of(network)
    mean = torch.randn(2, spec.numel, generator=rng)
    scale = 0.2 + 0.3 * torch.rand(2, spec.numel, generator=rng)
    x = torch.randn(4, 2, generator=rng)
    together = run_locally(network, spec, MeanFieldGaussian(mean, scale), x, 4000, generator=rng)  # (S, M, B, C)
    assert together.shape == (4000, 2, 4, 2)
    for member in range(2):
        # (S, B, C)
        alone = run_locally(network, spec, MeanFieldGaussian(mean[member], scale[member]), x, 4000, generator=rng)
        error = (2 * alone.var(0) / 4000).sqrt()
        assert ((together[:, member].mean(0) - alone.mean(0)).abs() < 4.5 * error).all()
        torch.testing.assert_close(together[:, member].std(0), alone.std(0), rtol=0.1, atol=0)
