"""The prior-matching term from inner products is that of samples that are formed."""

from copy import deepcopy
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Generator, Tensor, nn

from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.families.implicit import Implicit, ImplicitFamily, ImplicitSettings
from metareplay.posteriors.matching.ssge import SSGEMatching, SSGESettings
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.posteriors.products import SMALLEST_DIRECTION, NoisyProducts, _wishart_factor

PRIOR = GaussianPrior(2.0)
SHAPES: dict[str, dict[str, object]] = {
    "chunks, the last cut off": {"generator_chunk_size": 97, "generator_hidden": (6,)},
    "chunks, all whole": {"generator_chunk_size": 101, "generator_hidden": (6, 5)},
    "one linear layer": {"generator_chunk_size": None, "generator_hidden": ()},
    "a kernel of given width": {"generator_chunk_size": 97, "generator_hidden": (6,), "ssge_width": 3.0},
    "more points than samples": {"generator_chunk_size": 97, "generator_hidden": (6,), "ssge_samples": 7},
}


def posterior(**given: object) -> tuple[SSGEMatching, Implicit]:
    """A generator for 505 weights, with a theta that takes gradients."""
    estimate = {name: value for name, value in given.items() if name.startswith("ssge_")}
    of_generator = {name: value for name, value in given.items() if name not in estimate}
    settings = SSGESettings.model_validate({"prior_samples": 12, "ssge_samples": 12, "ssge_ratio": 0.98, **estimate})
    family = ImplicitFamily(ImplicitSettings.model_validate({"latent_size": 2, "support_noise": None, **of_generator}))
    network = nn.Linear(100, 5)
    theta = family.initial(network, WeightSpec.of(network), generator=Generator().manual_seed(1))
    theta = (theta + 0.3 * torch.randn(theta.shape, generator=Generator().manual_seed(2))).requires_grad_()
    return SSGEMatching(settings), family.at(theta, WeightSpec.of(network))


def slope(matching: SSGEMatching, q: "Implicit | Formed | GivenNoise", generator: Generator) -> tuple[Tensor, Tensor]:
    term = matching.term(q, PRIOR, generator=generator)
    theta = q.theta if isinstance(q, Implicit) else q.q.theta
    return term.detach(), torch.autograd.grad(term, theta)[0]


@pytest.mark.parametrize("name", SHAPES)
def test_without_noise_both_are_equal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matching, q = posterior(**SHAPES[name])
    formed = slope(matching, q, Generator().manual_seed(3))
    monkeypatch.setattr("metareplay.posteriors.families.implicit.FEW_WEIGHTS", 0)
    assert q.products_pay(12)
    products = slope(matching, q, Generator().manual_seed(3))
    torch.testing.assert_close(products[0], formed[0])
    torch.testing.assert_close(products[1], formed[1], rtol=1e-4, atol=1e-4 * float(formed[1].abs().max()))


@dataclass
class Formed:
    """The same distribution by samples that are formed, with noise that has nothing to do with the latent numbers."""

    q: Implicit

    def rsample(self, n: int, *, generator: Generator) -> Tensor:
        latent = torch.randn(n, self.q.settings.latent_size, generator=generator)
        # (n, W)
        weights = replace(self.q, settings=self.q.settings.model_copy(update={"support_noise": None})).weights_at(
            latent
        )
        return weights + self.q.noise_std * torch.randn(weights.shape, generator=generator)


@pytest.mark.slow
def test_noise_of_full_support_has_the_same_mean_and_no_more_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 1,500 draws of each the means differ by their standard errors."""
    monkeypatch.setattr("metareplay.posteriors.families.implicit.FEW_WEIGHTS", 0)
    matching, q = posterior(generator_chunk_size=97, generator_hidden=(6,), support_noise=0.3)
    actual = []
    for each in (Formed(q), q):
        generator = Generator().manual_seed(4)
        terms, slopes = zip(*(slope(matching, each, generator) for _ in range(1500)), strict=True)
        actual.append((torch.stack(terms).unsqueeze(1), torch.stack(slopes)))  # (1500, 1), (1500, P)
    for formed, products in zip(*actual, strict=True):
        error = ((formed.var(0) + products.var(0)) / 1500).sqrt()
        away = (formed.mean(0) - products.mean(0)).abs() / error
        assert float(away.max()) < 4.5
        assert float(away.square().mean()) < 1.5
    assert actual[1][1].var(0).sum() < 1.05 * actual[0][1].var(0).sum()


@dataclass
class GivenNoise:
    """Samples of q that are formed, with one noise that is given: (n, W)."""

    q: Implicit
    latent: Tensor
    noise: Tensor

    def rsample(self, n: int, *, generator: Generator) -> Tensor:
        assert n == len(self.noise)
        settings = self.q.settings.model_copy(update={"support_noise": None})
        return replace(self.q, settings=settings).weights_at(self.latent) + self.q.noise_std * self.noise


@pytest.mark.parametrize("given", [{}, {"ssge_width": 12.0}, {"ssge_samples": 7, "ssge_width": 12.0}])
def test_with_noise_the_gradient_is_the_mean_over_what_the_products_do_not_tell(
    given: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise orthogonal to the samples, with either sign, gives the same products; the mean gradient is the estimate."""
    monkeypatch.setattr("metareplay.posteriors.families.implicit.FEW_WEIGHTS", 0)
    matching, q = posterior(generator_chunk_size=97, generator_hidden=(6,), support_noise=0.3, **given)
    actual = slope(matching, q, Generator().manual_seed(4))
    generator = Generator().manual_seed(4)
    latent = torch.randn(12, 2, generator=generator)
    products = q.factored(12, generator=Generator().manual_seed(4)).products().detach()
    samples = GivenNoise(q, latent, torch.zeros(12, 505)).rsample(12, generator=generator).detach().double()
    again = Generator()
    again.set_state(generator.get_state())
    # the noise's part in the samples' span is along @ samples
    along = NoisyProducts.drawn(products, 0.3, 505, generator=generator).along
    rank = int((torch.linalg.eigvalsh(products) > SMALLEST_DIRECTION * products.norm()).sum())
    torch.randn(12, rank, generator=again, dtype=torch.float64)
    factor = _wishart_factor(12, 505 - rank, generator=again, like=products)
    other = torch.randn(12, 505, generator=again, dtype=torch.float64)
    # orthonormal, at right angles to the samples; (12, 505)
    upright = torch.linalg.qr(torch.cat([samples, other]).T)[0][:, 12:].T
    noises = [(along @ samples + sign * factor @ upright).float() for sign in (1, -1)]
    formed = [slope(matching, GivenNoise(q, latent, noise), generator) for noise in noises]
    torch.testing.assert_close(actual[0], formed[0][0], rtol=1e-4, atol=0)
    mean = (formed[0][1] + formed[1][1]) / 2
    assert (formed[0][1] - mean).norm() > 0.05 * mean.norm()  # that part of the noise matters
    torch.testing.assert_close(actual[1], mean, rtol=1e-3, atol=1e-3 * float(mean.abs().max()))


@pytest.mark.slow
def test_noisy_products_have_the_law_of_those_of_noisy_samples() -> None:
    """Means and covariances of all products over 20,000 draws of 3 samples of 60 weights, two of them collinear."""
    samples = torch.randn(3, 60, generator=Generator().manual_seed(5), dtype=torch.float64)
    samples[2] = 2 * samples[1]
    products, rows, columns = samples @ samples.T, *torch.triu_indices(3, 3)
    generator = Generator().manual_seed(6)
    drawn = torch.stack(
        [NoisyProducts.drawn(products, 0.5, 60, generator=generator).added[rows, columns] for _ in range(20000)]
    )
    noise = 0.5 * torch.randn(20000, 3, 60, generator=generator, dtype=torch.float64)
    formed = ((samples + noise) @ (samples + noise).mT - products)[:, rows, columns]
    assert ((drawn.mean(0) - formed.mean(0)) / (2 * formed.var(0) / 20000).sqrt()).abs().max() < 4
    scale = formed.std(0)
    assert ((drawn.T.cov() - formed.T.cov()) / (scale * scale.unsqueeze(1))).abs().max() < 0.04


def test_the_mean_of_the_noise_is_along_the_samples() -> None:
    """What ``along`` makes of the samples is the noise's part in their span: its products with them are the noise's."""
    samples = torch.randn(4, 500, generator=Generator().manual_seed(7), dtype=torch.float64)
    products = samples @ samples.T
    noise = NoisyProducts.drawn(products, 1e-6, 500, generator=Generator().manual_seed(8))
    crossed = noise.along @ products
    torch.testing.assert_close(noise.added / 1e-6, crossed + crossed.T, rtol=1e-3, atol=1e-2)


def test_weights_that_are_no_numbers_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metareplay.posteriors.families.implicit.FEW_WEIGHTS", 0)
    matching, q = posterior(generator_chunk_size=97, generator_hidden=(6,), support_noise=0.3)
    with torch.no_grad():
        q.theta.mul_(float("inf"))
    assert not matching.term(q, PRIOR, generator=Generator().manual_seed(3)).isfinite()


def test_a_posterior_serves_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of an earlier step is kept; and it can be copied after use."""
    for few in (10**6, 0):
        monkeypatch.setattr("metareplay.posteriors.families.implicit.FEW_WEIGHTS", few)
        matching, q = posterior(**SHAPES["chunks, the last cut off"])
        optimiser = torch.optim.SGD([q.theta], lr=0.01)
        before = q.theta.detach().clone()
        for _ in range(2):
            optimiser.zero_grad()
            matching.term(q, PRIOR, generator=Generator().manual_seed(3)).backward()
            optimiser.step()
        assert not torch.equal(q.theta, before)
        assert torch.equal(deepcopy(q).theta, q.theta)


def test_many_small_chunks_are_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of the last layer's inputs, one pair of each chunk, would take more work than the samples."""
    monkeypatch.setattr("metareplay.posteriors.families.implicit.FEW_WEIGHTS", 0)
    assert not posterior(generator_chunk_size=5, generator_hidden=(6,))[1].products_pay(12)


def test_few_weights_are_formed() -> None:
    assert not posterior(**SHAPES["one linear layer"])[1].products_pay(12)
