"""Means and covariances of an MLP's outputs under independent Gaussian weights, in one pass without samples."""

from collections.abc import Mapping
from math import pi, sqrt
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from metareplay.errors import ConfigError
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec
from metareplay.settings import Composition, Settings


class MomentsSettings(Settings):
    """Whether predictions need weight samples; for posteriors with independent Gaussian weights."""

    group: ClassVar[str] = "inference"
    predictive: Literal["samples", "moments"] = Field(
        "samples",
        description="samples: run the network with weight samples; moments: propagate means and variances through the "
        "layers of an MLP with Gaussian weights, and draw K samples of its outputs only",
    )

    def without_effect(self, composition: Composition) -> Mapping[str, str]:
        """Settings for weight samples."""
        if self.predictive == "samples":
            return {}
        return dict.fromkeys(
            ("inference.adaptive", "inference.autocast"), "inference.predictive=moments needs no weight samples"
        )

    def check(self, composition: Composition) -> None:
        """Moments are implemented for our own layers only."""
        network = composition.parts()["network"]
        if self.predictive == "moments" and not getattr(network, "multilayer", False):
            raise ConfigError(
                f"inference.predictive=moments works for MLPs only, not for {network.phrase}; set it to samples"
            )


NODES = 16
"""Points of the Gauss-Hermite quadrature for activations that have no closed form."""


def mlp_output_moments(
    mlp: MLP, spec: WeightSpec, mean: Tensor, scale: Tensor, x: Tensor, columns: slice = slice(None)
) -> tuple[Tensor, Tensor]:
    """Mean (B, C) and covariance (B, C, C) of some outputs under independent weights N(mean, scale^2).

    Forward, every unit has a mean and a variance: exact for a linear layer with independent inputs; a pre-activation, a
    sum of many terms, is assumed Gaussian, and an activation has the moments of a transformed Gaussian. Backward, as in
    linearised.py, what each layer's weights add to the outputs' covariance follows from the derivatives of the outputs'
    means, so that units correlated through shared inputs are so in the outputs. With s = E[f'(a)], the slope of the
    best linear fit to f(a), the residual of f(a) is uncorrelated with a; it is treated as independent noise.
    """
    weights, variances = spec.unflatten(mean), spec.unflatten(scale.square())
    h, spread = x.flatten(1), torch.zeros((), device=x.device)  # means (B, D) and variances of a layer's inputs
    from_weights, residuals, slopes = [], [], []
    variance = spread  # of the pre-activations
    for index in range(len(mlp.layers)):
        weight, bias = f"layers.{index}.weight", f"layers.{index}.bias"
        if index:
            h, spread, slope = activation_moments(mlp.activation, h, variance)
            slopes.append(slope)
            residuals.append((spread - slope.square() * variance).clamp_min(0.0))
        squares = torch.addcmul(spread, h, h)  # E[h^2]
        from_weights.append(F.linear(squares, variances[weight], variances[bias]))  # (B, D) -> (B, H)
        from_inputs = F.linear(spread, weights[weight].square()) if index else None  # (B, D) -> (B, H)
        variance = from_weights[-1] if from_inputs is None else from_weights[-1] + from_inputs  # (B, H)
        h = F.linear(h, weights[weight], weights[bias])  # (B, D) -> (B, H)
    identity = torch.eye(h.shape[1], device=h.device, dtype=h.dtype)
    g = identity[columns].unsqueeze(0)  # the same for all inputs: (1, C, outputs)
    covariance = _shared(g, from_weights[-1])
    for index in reversed(range(1, len(mlp.layers))):
        # with respect to the layer's inputs; (B or 1, C, H) -> (B or 1, C, D)
        g = g @ weights[f"layers.{index}.weight"]
        covariance = covariance + _shared(g, residuals[index - 1])
        g = g * slopes[index - 1].unsqueeze(1)  # with respect to the pre-activations before them
        covariance = covariance + _shared(g, from_weights[index - 1])
    return h[:, columns], covariance


def _shared(g: Tensor, variances: Tensor) -> Tensor:
    """sum_i g_ci g_di variance_i: what independent variances (B, H) add to the outputs' covariance (B, C, C)."""
    return (g * variances.unsqueeze(1)) @ g.mT


def activation_moments(activation: nn.Module, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """E[f(a)], Var[f(a)] and E[f'(a)] for a ~ N(mean, variance), elementwise: exact for ReLU, else by quadrature."""
    std = variance.clamp_min(1e-16).sqrt()
    if isinstance(activation, nn.ReLU):
        z = mean / std
        tilt = torch.erf(z * sqrt(0.5))  # 2 Phi(z) - 1
        above, density = 0.5 + 0.5 * tilt, torch.exp(-0.5 * z.square()) * sqrt(0.5 / pi)
        first = torch.addcmul(density, z, above)  # E[max(0, z + e)]
        both = 0.25 * (1 - tilt.square())  # Phi(z) Phi(-z)
        second = above + z * (z * both - density * tilt) - density.square()  # its variance, exact at z >> 0
        return std * first, variance * second.clamp_min(0.0), above
    points, masses = (torch.from_numpy(part).to(mean) for part in np.polynomial.hermite_e.hermegauss(NODES))
    masses = (masses / masses.sum()).view(-1, 1, 1)  # (Q, 1, 1)
    at = mean + std * points.view(-1, 1, 1)  # (Q, B, H)
    values, slopes = torch.func.jvp(activation, (at,), (torch.ones_like(at),))[:2]
    first = (masses * values).sum(0)  # (Q, B, H) -> (B, H)
    return first, (masses * (values - first).square()).sum(0), (masses * slopes).sum(0)
