"""The local reparametrisation trick [Kingma2015] for MLPs: sample pre-activations instead of weights."""

import torch
from torch import Generator, Tensor

from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.seeding import normal


def run_locally(
    mlp: MLP, spec: WeightSpec, posterior: MeanFieldGaussian, x: Tensor, samples: int, *, generator: Generator
) -> Tensor:
    """Output samples (S, ..., B, C) of an MLP with Gaussian weights (..., W).

    Each pre-activation is Gaussian given its inputs, so sampling it independently for every example has the same
    marginal distribution and less gradient variance [Henning2021, SM sec. Bayes-by-Backprop].
    """
    mean, variance = spec.unflatten(posterior.mean), spec.unflatten(posterior.scale.square())
    h = x.flatten(1)  # (B, ...) -> (B, D)
    for index in range(len(mlp.layers)):
        h = h if index == 0 else mlp.activation(h)
        weight, bias = f"layers.{index}.weight", f"layers.{index}.bias"
        centre = h @ mean[weight].mT + mean[bias].unsqueeze(-2)  # (..., B, D) -> (..., B, H)
        variances = h.square() @ variance[weight].mT + variance[bias].unsqueeze(-2)  # (..., B, D) -> (..., B, H)
        spread = variances.clamp_min(1e-16).sqrt()
        noise = normal(samples, *posterior.mean.shape[:-1], *centre.shape[-2:], generator=generator, like=centre)
        h = torch.addcmul(centre, spread, noise)  # (S, ..., B, H)
    return h
