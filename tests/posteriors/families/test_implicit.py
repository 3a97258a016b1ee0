"""Implicit posteriors: weights generated from noise, their initialisation, and what growth preserves."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec, run_flat
from metareplay.posteriors.families.implicit import Implicit, ImplicitFamily, ImplicitSettings
from metareplay.posteriors.matching.ssge import SSGEMatching, SSGESettings
from metareplay.posteriors.priors.gaussian import GaussianPrior

NETWORK = MLP((3,), (4,), 2)
SPEC = WeightSpec.of(NETWORK)  # 26 weights
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "linear": {"generator_hidden": ()},
    "relu": {"generator_activation": "relu", "generator_hidden": (5,)},
    "no-noise": {"support_noise": None},
    "many-latents": {"latent_size": 70},
    "chunked": {"generator_chunk_size": 7, "generator_chunk_embedding_size": 4},
    "chunked-linear": {"generator_chunk_size": 13, "generator_hidden": (), "support_noise": None},
    "one-large-chunk": {"generator_chunk_size": 40, "latent_size": 70},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def family_of(kind: str, **more: Any) -> ImplicitFamily:
    return ImplicitFamily(ImplicitSettings(**{"latent_size": 6, "support_noise": 0.1, **KINDS[kind], **more}))


def start(kind: str, **more: Any) -> tuple[ImplicitFamily, Tensor, Implicit]:
    family = family_of(kind, **more)
    theta = family.initial(NETWORK, SPEC, generator=Generator().manual_seed(0))
    return family, theta, family.at(theta, SPEC)


@pytest.mark.parametrize("kind", ["plain", "linear", "relu", "no-noise", "many-latents"])
def test_weights_are_the_outputs_of_an_mlp_plus_noise(kind: str, rng: Generator) -> None:
    family, theta, posterior = start(kind)
    settings = family.settings
    wg = MLP((settings.latent_size,), settings.generator_hidden, SPEC.numel, settings.generator_activation)
    theta += 0.1 * torch.randn(theta.shape, generator=rng)
    z = torch.randn(5, posterior.noise_size, generator=rng)
    expected = run_flat(wg, WeightSpec.of(wg), theta.unsqueeze(0), z[:, : settings.latent_size])[0]
    if settings.support_noise is not None:
        expected = expected + settings.support_noise * z[:, : SPEC.numel]
    torch.testing.assert_close(posterior.weights_at(z), expected)


def test_chunks_are_the_outputs_of_one_mlp_for_each_embedding(rng: Generator) -> None:
    family, theta, posterior = start("chunked", support_noise=None)
    wg = MLP((6 + 4,), family.settings.generator_hidden, 7, "tanh")
    layers = WeightSpec.of(wg)
    z, embeddings = torch.randn(5, 6, generator=rng), theta[layers.numel :].view(4, 4)  # 26 weights take 4 chunks of 7
    chunks = [
        run_flat(wg, layers, theta[: layers.numel].unsqueeze(0), torch.cat([z, e.expand(5, -1)], 1))[0]
        for e in embeddings
    ]
    torch.testing.assert_close(posterior.weights_at(z), torch.cat(chunks, 1)[:, : SPEC.numel])


@every_kind
def test_several_posteriors_at_once(kind: str, rng: Generator) -> None:
    family, theta, posterior = start(kind)
    thetas = torch.stack([theta, theta + 0.1, theta - 0.3])
    z = torch.randn(5, 3, posterior.noise_size, generator=rng)
    together = family.at(thetas, SPEC).weights_at(z)
    assert together.shape == (5, 3, SPEC.numel)
    for task in range(3):
        torch.testing.assert_close(together[:, task], family.at(thetas[task], SPEC).weights_at(z[:, task]))
    assert family.at(thetas, SPEC).rsample(2, generator=rng).shape == (2, 3, SPEC.numel)


def test_the_noise_has_the_spread_it_should(rng: Generator) -> None:
    """A generator of zeros leaves the noise of the support: its deviation is support_noise times latent_std."""
    family = family_of("plain", latent_std=0.5)
    draws = family.at(torch.zeros(family.num_parameters(SPEC)), SPEC).rsample(20000, generator=rng)
    assert abs(float(draws.std()) / (0.1 * 0.5) - 1) < 5 / (2 * draws.numel()) ** 0.5
    silent = family_of("no-noise")
    assert not silent.at(torch.zeros(silent.num_parameters(SPEC)), SPEC).rsample(5, generator=rng).any()


def test_the_latent_spread_scales_the_input(rng: Generator) -> None:
    linear = {std: start("linear", latent_std=std, support_noise=None)[2] for std in (0.1, 1.0)}
    draws = {std: posterior.rsample(9, generator=Generator().manual_seed(4)) for std, posterior in linear.items()}
    torch.testing.assert_close(draws[1.0], 10 * draws[0.1])  # biases start at zero


@every_kind
def test_initial_theta_has_the_stated_variances(kind: str) -> None:
    family = family_of(kind)
    starts = torch.stack([family.initial(NETWORK, SPEC, generator=Generator().manual_seed(seed)) for seed in range(60)])
    variances, shape = family.initial_variances(NETWORK, SPEC), family.shape(SPEC)
    for start, target in zip(starts.split(shape.sizes, dim=-1), variances.split(shape.sizes), strict=True):
        assert float(start.square().mean()) == pytest.approx(float(target.mean()), rel=0.2)


def test_the_start_of_the_network_is_kept_where_asked() -> None:
    family, _, posterior = start("no-noise", keep_network_init=True)
    torch.testing.assert_close(posterior.weights_at(torch.zeros(1, 6))[0], SPEC.flatten(NETWORK))  # tanh(0) = 0
    assert family.initial_variances(NETWORK, SPEC)[family.weight_mask(SPEC)].any()


@every_kind
def test_growth_keeps_the_samples_of_old_weights(kind: str, rng: Generator) -> None:
    """Twice, as a model grows: what the same noise makes of the old weights stays to the last bit, or nearly."""
    family, theta, before = start(kind)
    noise, small = torch.randn(8, 300, generator=rng), SPEC
    for outputs in (5, 6):
        network = MLP((3,), (4,), outputs)
        larger = WeightSpec.of(network).grown_from(small)
        grown = family.initial(network, larger, generator=rng)
        grown[family.positions_in(small, larger)] = theta
        after = family.at(grown, larger)
        old, new = (posterior.weights_at(noise[:, : posterior.noise_size]) for posterior in (before, after))
        torch.testing.assert_close(new[:, small.positions_in(larger)], old)
        theta, before, small = grown, after, larger


@every_kind
def test_the_prior_term_is_the_cross_entropy_with_another_gradient(kind: str) -> None:
    family, theta, _ = start(kind)
    theta.requires_grad_()
    posterior, prior = family.at(theta, SPEC), GaussianPrior(2.0)
    actual = SSGEMatching(SSGESettings(prior_samples=12)).term(posterior, prior, generator=Generator().manual_seed(3))
    cross_entropy = -prior.log_prob(posterior.rsample(12, generator=Generator().manual_seed(3))).mean()
    torch.testing.assert_close(actual, cross_entropy)
    whole, part = (torch.autograd.grad(term, theta)[0] for term in (actual, cross_entropy))
    assert whole.isfinite().all()
    assert not torch.allclose(whole, part)  # the entropy pushes samples apart


def test_a_posterior_that_is_not_finite_has_no_finite_prior_term(rng: Generator) -> None:
    family, theta, _ = start("plain")
    theta[0] = float("nan")
    assert (
        not SSGEMatching(SSGESettings(prior_samples=3))
        .term(family.at(theta, SPEC), GaussianPrior(), generator=rng)
        .isfinite()
    )


def test_a_start_by_fan_in_gives_weights_of_that_variance() -> None:
    """Rows of the output layer vary by 1 / (m H), hidden layers by 2 / fan-in, biases are zero."""
    settings = ImplicitSettings(latent_size=40, generator_hidden=(300,), generator_start="hyperfan")
    family, network = ImplicitFamily(settings), MLP((50,), (60,), 20)
    spec = WeightSpec.of(network)
    shape = family.shape(spec)
    theta = shape.unflatten(family.initial(network, spec, generator=Generator().manual_seed(0)))
    assert float(theta["layers.0.weight"].var()) == pytest.approx(2 / 40, rel=0.05)
    rows = spec.unflatten(theta["layers.1.weight"].square().mean(1))
    for name, fan_in in (("layers.0.weight", 50), ("layers.0.bias", 1), ("layers.1.weight", 60), ("layers.1.bias", 1)):
        assert float(rows[name].mean()) == pytest.approx(1 / (fan_in * 300), rel=0.05)
    assert not theta["layers.1.bias"].any()
