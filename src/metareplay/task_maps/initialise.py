"""Initialisation of hypernetworks by the variance of what they emit [Chang2020], adapted to chunks.

An output is a linear function of the last hidden layer, out_i = a_i . h, so Var(out_i) = H * Var(a_i) * E[h^2].
Given the target variance of each output, this fixes the variance of the output layer's rows. A row of a chunked
hypernetwork serves one output in each chunk; it takes the mean of their target variances. Where some of these are
weights of the main network (or their means) and others are not (their scales), weights that start too large do harm,
so the mean is over the weights only.
"""

from math import prod, sqrt

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from metareplay.nets.weights import WeightSpec

SMALLEST_VARIANCE = 1e-5
"""Of chunk embeddings that have to meet the variances of outputs."""

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)


def activation_second_moment(activation: nn.Module, input_moment: float, layer: nn.Linear) -> float:
    """E[phi(a)^2] for a pre-activation a = w . x, Gaussian over Xavier weights w and inputs of this mean square."""
    weight_variance = 2 / (layer.in_features + layer.out_features)  # Xavier
    scale = sqrt(layer.in_features * weight_variance * input_moment)
    values = activation(torch.from_numpy(_NODES * scale)).numpy()
    return float((values**2 * _WEIGHTS).sum() / _WEIGHTS.sum())  # Gauss-Hermite quadrature over N(0, scale^2)


def match_output_variances(
    layer: nn.Linear, moment: float, variances: Tensor, generator: Generator, weights: Tensor | None = None
) -> None:
    """Draw the output layer's rows uniformly so that its outputs, chunk after chunk, have the target variances (P,).

    Outputs that are ``weights`` (P,) take precedence over others in the same row.
    """
    rows = layer.out_features
    shape, padding = (-1, rows), (0, -len(variances) % rows)
    known = F.pad(variances, padding, value=float("nan")).view(shape)  # (P,) -> (L, R)
    target = known.nanmean(0).nan_to_num(0.0)  # mean over the chunks; (L, R) -> (R,)
    if weights is not None:
        first = torch.where(F.pad(weights, padding).view(shape), known, float("nan")).nanmean(0)  # (L, R) -> (R,)
        target = torch.where(first.isnan(), target, first)
    spread = (3 * target / (layer.in_features * moment)).sqrt()  # U(-s, s) has variance s^2 / 3
    noise = torch.rand(layer.weight.shape, generator=generator) * 2 - 1
    layer.weight.data.copy_(noise * spread.unsqueeze(1))  # (R, H)
    layer.bias.data.zero_()


def keep_input_variance(layer: nn.Linear, generator: Generator) -> None:
    """Uniform weights of variance 1 / fan-in and zero biases: a linear layer's outputs vary as its inputs do."""
    bound = sqrt(3 / layer.in_features)
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    nn.init.zeros_(layer.bias)


def embedding_variances(variances: Tensor, chunk_size: int, task: tuple[int, float], size: int) -> Tensor:
    """Variances of chunk embeddings of this size that give outputs (P,) their variances, on average over a chunk: (L,).

    ``task``: length and variance of a task embedding. Inputs vary by (n_e Var(e) + n_c Var(c)) / (n_e + n_c) on
    average, and layers that keep this hand it on to the outputs.
    """
    padded = F.pad(variances, (0, -len(variances) % chunk_size), value=float("nan"))
    wanted = padded.view(-1, chunk_size).nanmean(1)  # (P,) -> (L,)
    length, variance = task
    return (((length + size) * wanted - length * variance) / size).clamp_min(SMALLEST_VARIANCE)


def hyperfan_variances(spec: WeightSpec, *, relu: bool) -> Tensor:
    """Hyperfan-in [Chang2020, table 1]: variances of generated weights (W,) that keep the activations stable.

    If a layer's bias is generated too, weights and biases share the variance of its output equally. A normalisation
    layer, recognised by its one-dimensional weight, has inputs of variance one, which its scale and shift share.
    """
    gain, parts, shapes = 2.0 if relu else 1.0, [], dict(zip(spec.names, spec.shapes, strict=True))
    for name, size in zip(spec.names, spec.sizes, strict=True):
        layer = name.removesuffix("weight").removesuffix("bias")
        normalises = len(shapes.get(f"{layer}weight", ())) == 1
        share = 2.0 if {f"{layer}weight", f"{layer}bias"} <= shapes.keys() else 1.0
        fan_in = prod(shapes[name][1:])  # 1 for biases
        parts.append(torch.full((size,), (1.0 if normalises else gain) / (share * fan_in)))
    return torch.cat(parts)
