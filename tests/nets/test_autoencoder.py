"""Autoencoders: their loss, gates by class, and that they learn to generate."""

import torch
from torch import Generator
from torch.distributions import Normal, kl_divergence

from metareplay.nets.autoencoder import (
    Decoder,
    class_gates,
    encoded,
    make_encoder,
    reconstruction_error,
    reconstruction_loss,
)


def test_the_divergence_is_that_of_two_gaussians(rng: Generator) -> None:
    encoder, x = make_encoder(5, (4,), 3), torch.randn(6, 5, generator=rng)
    z, divergence = encoded(encoder, x, generator=rng)
    mean, log_variance = encoder(x).chunk(2, 1)
    expected = kl_divergence(Normal(mean, (0.5 * log_variance).exp()), Normal(0.0, 1.0)).sum(1).mean()
    torch.testing.assert_close(divergence, expected)
    assert z.shape == (6, 3)


def test_reconstruction_is_a_likelihood(rng: Generator) -> None:
    outputs, x = torch.randn(4, 3, generator=rng), torch.randint(2, (4, 3), generator=rng).float()
    expected = -torch.distributions.Bernoulli(logits=outputs).log_prob(x).sum(1).mean()
    torch.testing.assert_close(reconstruction_error(outputs, x, binary=True), expected)
    scale = (outputs - x).square().mean().sqrt()  # the best one for this batch
    gaussian = -Normal(outputs, scale).log_prob(x).sum(1).mean()
    constant = 0.5 * 3 * (1 + torch.log(2 * torch.tensor(torch.pi)))
    error = reconstruction_error(outputs, x, binary=False)
    torch.testing.assert_close(reconstruction_loss(error, 3, binary=False), gaussian - constant)


def test_gates_are_a_class_of_their_own_and_switch_units_off(rng: Generator) -> None:
    gates = class_gates(3, 10, 0.4, 7)
    assert gates.sum(1).tolist() == [6, 6, 6]
    assert not torch.equal(gates[0], gates[1])
    assert torch.equal(class_gates(5, 10, 0.4, 7)[:3], gates)  # whatever else there is
    decoder, z = Decoder(2, (6, 4), 3), torch.randn(5, 2, generator=rng)
    closed = torch.zeros(5, 10)
    torch.testing.assert_close(decoder(z, closed), decoder.layers[-1].bias.expand(5, 3))
    torch.testing.assert_close(decoder(z, torch.ones(5, 10)), decoder(z))
