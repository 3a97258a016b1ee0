"""The AVB discriminator and its training: shapes, chunks, where gradients go, what a checkpoint holds."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from metareplay.errors import ConfigError
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.base import MatchingContext, Prior
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.families.implicit import Implicit, ImplicitFamily, ImplicitSettings
from metareplay.posteriors.matching.avb import AVBMatching, AVBSettings, Discriminator
from metareplay.posteriors.priors.gaussian import GaussianPrior

NETWORK = MLP((3,), (4,), 2)
SPEC = WeightSpec.of(NETWORK)  # 26 weights
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "linear": {"avb_hidden": ()},
    "statistics": {"avb_batch_statistics": True},
    "mean": {"avb_batch_statistics": "mean", "avb_clipped": False},
    "chunked": {"avb_chunk_size": 7},
    "chunked-statistics": {"avb_chunk_size": 26, "avb_chunk_hidden": (), "avb_batch_statistics": True},
    "no-contrast": {"avb_contrast_samples": None},
    "several-steps": {"avb_steps": 3, "avb_learning_rate": 0.1},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def settings_of(kind: str, **more: Any) -> AVBSettings:
    return AVBSettings(**{"avb_hidden": (5,), "avb_batch_size": 8, "avb_contrast_samples": 20, **KINDS[kind], **more})


def matching_of(settings: AVBSettings, generator: Generator, clip_norm: float | None = None) -> AVBMatching:
    return AVBMatching(settings, MatchingContext(SPEC.numel, 0.01, None, clip_norm, generator))


def start(kind: str, support_noise: float | None = 0.02, **more: Any) -> tuple[AVBMatching, Tensor, Implicit]:
    family = ImplicitFamily(ImplicitSettings(latent_size=6, support_noise=support_noise))
    theta = family.initial(NETWORK, SPEC, generator=Generator().manual_seed(0)).requires_grad_()
    return matching_of(settings_of(kind, **more), Generator().manual_seed(1)), theta, family.at(theta, SPEC)


def parameters(matching: AVBMatching) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in matching.parameters])


def test_a_chunked_discriminator_reduces_each_chunk_by_the_same_network(rng: Generator) -> None:
    discriminator, weights = Discriminator(26, settings_of("chunked")), torch.randn(5, 26, generator=rng)
    padded = torch.cat([weights, torch.zeros(5, 2)], dim=1)  # 26 weights take 4 chunks of 7
    reduced = torch.cat([discriminator.reduce(chunk) for chunk in padded.split(7, dim=1)], dim=1)  # (5, 4 * 4)
    torch.testing.assert_close(discriminator(weights), discriminator.judge(reduced).squeeze(1))
    assert discriminator.judge.layers[0].in_features == 16


def test_batch_statistics_are_those_of_the_batch(rng: Generator) -> None:
    discriminator, weights = Discriminator(26, settings_of("statistics")), torch.randn(5, 26, generator=rng)
    mean, spread = weights.mean(0), (weights - weights.mean(0)).square().mean(0).sqrt()
    rows = torch.stack([torch.cat([row, mean, spread]) for row in weights])
    torch.testing.assert_close(discriminator(weights), discriminator.judge(rows).squeeze(1))
    plain = Discriminator(26, settings_of("plain"))
    torch.testing.assert_close(plain(weights)[:2], plain(weights[:2]))  # without them a sample is judged by itself
    assert not torch.allclose(discriminator(weights)[:2], discriminator(weights[:2]))


def test_published_statistics_are_the_mean_alone_and_the_term_is_not_divided(rng: Generator) -> None:
    discriminator, weights = Discriminator(26, settings_of("mean")), torch.randn(5, 26, generator=rng)
    rows = torch.cat([weights, weights.mean(0).expand(5, -1)], 1)
    torch.testing.assert_close(discriminator(weights), discriminator.judge(rows).squeeze(1))
    matching, _, q = start("mean", avb_contrast_samples=None)
    assert (matching.clip_value, matching.clip_norm) == (None, None)
    state = rng.get_state()
    one = q.rsample(1, generator=rng)  # prior_samples, its own mean
    expected = matching.discriminator(one).mean()
    rng.set_state(state)
    torch.testing.assert_close(matching.term(q, GaussianPrior(1.0), generator=rng), expected)


def test_batch_statistics_of_equal_samples_have_gradients() -> None:
    discriminator, weights = Discriminator(26, settings_of("statistics")), torch.ones(1, 26, requires_grad=True)
    (gradient,) = torch.autograd.grad(discriminator(weights).sum(), weights)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "linear"])
def test_learning_tells_the_posterior_from_a_wider_prior(kind: str, rng: Generator) -> None:
    matching, _, q = start(kind, avb_contrast_samples=None, avb_learning_rate=0.05)
    prior = GaussianPrior(9.0)
    for _ in range(60):
        matching.learn(q, prior, generator=rng)
    with torch.no_grad():
        on_posterior = matching.discriminator(q.rsample(8, generator=rng))
        on_prior = matching.discriminator(prior.over(SPEC.numel).rsample(8, generator=rng))
    assert float(on_posterior.mean()) > 1
    assert float(on_prior.mean()) < -1


def test_the_loss_of_a_step_is_that_of_the_paper(rng: Generator) -> None:
    """The first step's gradient is that of E_q log sigmoid(f) + E_p log(1 - sigmoid(f)), maximised."""
    matching, _, q = start("no-contrast")
    state, prior = rng.get_state(), GaussianPrior(2.0)
    from_posterior = q.rsample(8, generator=rng).detach()
    from_prior = prior.over(SPEC.numel).rsample(8, generator=rng)
    f = matching.discriminator
    objective = torch.log(torch.sigmoid(f(from_posterior))).mean() + torch.log(1 - torch.sigmoid(f(from_prior))).mean()
    expected = torch.autograd.grad(objective, matching.parameters)
    rng.set_state(state)
    matching.learn(q, prior, generator=rng)
    for parameter, gradient in zip(matching.parameters, expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, -gradient, atol=1e-6, rtol=1e-4)


@every_kind
def test_learning_reaches_the_discriminator_alone_and_the_term_the_posterior_alone(kind: str, rng: Generator) -> None:
    matching, theta, q = start(kind, prior_samples=4)
    before = parameters(matching)
    matching.learn(q, GaussianPrior(), generator=rng)
    assert theta.grad is None
    assert not torch.equal(parameters(matching), before)
    matching.optimiser.zero_grad()
    learned = parameters(matching)
    matching.term(q, GaussianPrior(), generator=rng).backward()
    assert all(parameter.grad is None for parameter in matching.parameters)
    assert torch.equal(parameters(matching), learned)
    assert theta.grad is not None
    assert theta.grad.isfinite().all()
    assert theta.grad.any()


def test_the_contrast_takes_the_terms_of_the_paper(rng: Generator) -> None:
    """log r - log p + f~_D at the samples, and log q - log p if f~_D were log q - log r."""
    matching, _, q = start("plain", prior_samples=6)
    state, prior = rng.get_state(), GaussianPrior(2.0)
    actual = matching.term(q, prior, generator=rng)
    rng.set_state(state)
    others, weights = q.rsample(20, generator=rng).detach(), q.rsample(6, generator=rng).detach()
    r = MeanFieldGaussian(others.mean(0), others.std(0))
    ratio = matching.discriminator(weights)
    torch.testing.assert_close(actual, (r.log_prob(weights) - prior.log_prob(weights) + ratio).mean())


@every_kind
def test_it_resumes_from_its_tensors_bit_for_bit(kind: str) -> None:
    whole, _, q = start(kind)
    noise = Generator().manual_seed(5)
    for _ in range(3):
        whole.learn(q, GaussianPrior(), generator=noise)
    stored = {name: tensor.clone() for name, tensor in whole.tensors().items()}
    other = matching_of(whole.settings, Generator().manual_seed(9))
    other.restore(stored)
    again = Generator()
    again.set_state(noise.get_state())
    for _ in range(2):
        whole.learn(q, GaussianPrior(), generator=noise)
        other.learn(q, GaussianPrior(), generator=again)
    assert whole.tensors().keys() == other.tensors().keys()
    assert all(torch.equal(value, other.tensors()[name]) for name, value in whole.tensors().items())


def test_its_gradients_are_clipped_like_the_others(rng: Generator) -> None:
    _, _, q = start("plain")
    clipped = matching_of(settings_of("plain"), rng, clip_norm=1e-3)
    clipped.learn(q, GaussianPrior(), generator=rng)
    norm = torch.cat(
        [parameter.grad.flatten() for parameter in clipped.parameters if parameter.grad is not None]
    ).norm()
    assert float(norm) == pytest.approx(1e-3, rel=1e-3)


class OnlyDensity:
    """A prior that cannot be sampled."""

    def log_prob(self, weights: Tensor) -> Tensor:
        return -weights.square().sum(-1)


def test_without_contrast_the_prior_must_have_samples(rng: Generator) -> None:
    matching, _, q = start("plain", prior_samples=2)
    prior: Prior = OnlyDensity()
    matching.learn(q, prior, generator=rng)
    assert matching.term(q, prior, generator=rng).isfinite()
    bare, _, q = start("no-contrast")
    with pytest.raises(ConfigError, match="needs samples of the prior, and OnlyDensity has none"):
        bare.learn(q, prior, generator=rng)


def test_a_weight_that_does_not_vary_has_a_finite_term(rng: Generator) -> None:
    matching, theta, q = start("plain", support_noise=None, prior_samples=3)
    with torch.no_grad():
        theta.zero_()
    matching.learn(q, GaussianPrior(), generator=rng)
    term = matching.term(q, GaussianPrior(), generator=rng)
    (gradient,) = torch.autograd.grad(term, theta)
    assert term.isfinite()
    assert gradient.isfinite().all()
