"""Reparametrised samples w = mu + sigma * eps [Henning2021, sm:eq:reparam:trick], with gradients in one pass."""

from typing import Any, cast

import torch
from torch import Tensor


def reparametrise(mean: Tensor, scale: Tensor, noise: Tensor) -> Tensor:
    """Samples mean + scale * noise: (..., W), (..., W), (n, ..., W) -> (n, ..., W). The noise gets no gradient.

    It can be differentiated twice and used with ``torch.func.vmap``.
    """
    return cast(Tensor, _Reparametrise.apply(mean, scale, noise))


def reparametrise_reference(mean: Tensor, scale: Tensor, noise: Tensor) -> Tensor:
    """The same with PyTorch operations; gradients take three passes and store a product of the noise's size."""
    return mean + scale * noise.detach()  # w = mu + sigma * eps, SM eq. reparam:trick; (n, ..., W)


class _Reparametrise(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, scale: Tensor, noise: Tensor) -> Tensor:
        return torch.addcmul(mean, scale, noise)  # w = mu + sigma * eps, SM eq. reparam:trick; (n, ..., W)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None]:
        (noise,) = ctx.saved_tensors
        by_scale = slope[0] * noise[0]  # (n, ..., W) -> (..., W)
        for of_sample, eps in zip(slope[1:], noise[1:], strict=True):
            by_scale = torch.addcmul(by_scale, of_sample, eps)
        return slope[0] if len(slope) == 1 else slope.sum(0), by_scale, None  # one sample: no sum, no copy
