"""The outputs of an MLP linearised in its weights, for Gaussian weights, without the derivative for each weight."""

import torch
import torch.nn.functional as F
from torch import Tensor

from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec


def linearised_mlp_outputs(
    mlp: MLP, spec: WeightSpec, mean: Tensor, scale: Tensor, x: Tensor, columns: slice = slice(None)
) -> tuple[Tensor, Tensor]:
    """As ``linearised_outputs`` of weights.py: mean (B, C) and covariance (B, C, C).

    The derivative of output c with respect to the weight from a_j to pre-activation i is g_ci a_j, where g_ci is the
    derivative with respect to that pre-activation. A layer then adds sum_i g_ci g_di sum_j scale_ij^2 a_j^2 to the
    covariance of outputs c and d: a forward pass of squares, whatever the number of weights.
    """
    weights, variances = spec.unflatten(mean), spec.unflatten(scale.square())
    inputs, slopes, h = [], [], x.flatten(1)  # (B, ...) -> (B, D)
    for index in range(len(mlp.layers)):
        if index:
            h, slope = torch.func.jvp(mlp.activation, (h,), (torch.ones_like(h),))[:2]  # elementwise; (B, H)
            slopes.append(slope)
        inputs.append(h)
        h = F.linear(h, weights[f"layers.{index}.weight"], weights[f"layers.{index}.bias"])  # (B, D) -> (B, H)
    outputs = h[:, columns]  # (B, C)
    g = torch.eye(h.shape[1], device=h.device)[columns].expand(len(x), -1, -1)  # (B, C, outputs)
    covariance = torch.zeros((), device=h.device)
    for index in reversed(range(len(mlp.layers))):
        name = f"layers.{index}"
        weight, bias = variances[f"{name}.weight"], variances[f"{name}.bias"]
        spread = F.linear(inputs[index].square(), weight, bias)  # (B, D) -> (B, H)
        covariance = covariance + (g * spread.unsqueeze(1)) @ g.mT  # (B, C, C)
        if index:
            g = (g @ weights[f"{name}.weight"]) * slopes[index - 1].unsqueeze(1)  # (B, C, H) -> (B, C, D)
    return outputs, covariance
