"""Variational autoencoders of inputs: a decoder that turns noise into inputs, and the encoder it is trained with.

[Kingma2014]; the decoder mirrors the encoder. Gates switch hidden units of the decoder off, by the class of the input
[vandeVen2020].
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import final

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from metareplay.nets.mlp import MLP
from metareplay.seeding import generator_for, normal

SMALLEST_ERROR = 1e-6


@final
class Decoder(nn.Module):
    """Latent numbers (B, L) -> inputs (B, D): logits of numbers from 0 to 1, or real numbers."""

    def __init__(self, latent: int, hidden: Sequence[int], inputs: int) -> None:
        super().__init__()
        self.hidden, self.inputs = tuple(hidden), inputs
        layers = [nn.Linear(n_in, n_out) for n_in, n_out in pairwise((latent, *hidden, inputs))]
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.layers = nn.ModuleList(layers)

    def forward(self, z: Tensor, gates: Tensor | None = None) -> Tensor:
        """``gates`` (B, all hidden units) multiply the hidden units."""
        parts = None if gates is None else gates.split(self.hidden, dim=1)
        h = z
        for index, layer in enumerate(self.layers):
            h = layer(h)  # (B, H) -> (B, H')
            if index < len(self.hidden):
                h = h.relu() if parts is None else h.relu() * parts[index]
        return h


def make_encoder(inputs: int, hidden: Sequence[int], latent: int) -> MLP:
    """Inputs -> mean and log variance of their latent numbers, (B, ...) -> (B, 2 L)."""
    return MLP((inputs,), hidden, 2 * latent)


def encoded(encoder: MLP, x: Tensor, *, generator: Generator) -> tuple[Tensor, Tensor]:
    """A sample of q(z | x), (B, L), and its divergence from N(0, I), the mean over inputs."""
    mean, log_variance = encoder(x).chunk(2, dim=1)  # (B, L) each
    noise = normal(*mean.shape, generator=generator, like=mean)
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1).mean()  # [Kingma2014, app. B]
    return mean + (0.5 * log_variance).exp() * noise, divergence


def reconstruction_error(outputs: Tensor, x: Tensor, *, binary: bool) -> Tensor:
    """The mean over inputs (B, D): -log p(x | z) for numbers from 0 to 1, else the squared error of each number."""
    if binary:
        return F.binary_cross_entropy_with_logits(outputs, x, reduction="none").sum(1).mean()
    return (outputs - x).square().mean()


def reconstruction_loss(error: Tensor, inputs: int, *, binary: bool) -> Tensor:
    """-log p(x | z) of a whole step, from its error: Bernoulli for numbers from 0 to 1, else Gaussian.

    The Gaussian has the variance that suits the step best, so that inputs of any scale need no setting.
    """
    return error if binary else 0.5 * inputs * error.clamp_min(SMALLEST_ERROR).log()


def as_inputs(outputs: Tensor, *, binary: bool) -> Tensor:
    """What a decoder's outputs mean."""
    return outputs.sigmoid() if binary else outputs


@lru_cache(maxsize=4)
def class_gates(classes: int, units: int, share_off: float, seed: int) -> Tensor:
    """Which hidden units are on for each class: a random ``share_off`` of them is not; (classes, units)."""
    off = round(share_off * units)
    gates = torch.ones(classes, units)
    for label in range(classes):  # the same for a class however many there are
        gates[label, torch.randperm(units, generator=generator_for(seed, "gates", label))[:off]] = 0
    return gates
