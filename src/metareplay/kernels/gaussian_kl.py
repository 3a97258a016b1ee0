"""KL(q || p) of two diagonal Gaussians with gradients in closed form.

With r = sigma_q / sigma_p and z = (mu_q - mu_p) / sigma_p it is the sum over the weights of
(r^2 + z^2 - 1) / 2 - log r, and its gradients are

    d mu_q: z / sigma_p, d mu_p: -z / sigma_p,
    d sigma_q: (r - 1 / r) / sigma_p, d sigma_p: (1 - r^2 - z^2) / sigma_p.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def gaussian_kl(q_mean: Tensor, q_scale: Tensor, p_mean: Tensor, p_scale: Tensor) -> Tensor:
    """KL(q || p) summed over the weights: (..., W) -> (...).

    Inputs broadcast: one p can serve several q, and a prior with one mean and one scale is two numbers.
    """
    return cast(Tensor, _GaussianKL.apply(q_mean, q_scale, p_mean, p_scale))


def gaussian_kl_reference(q_mean: Tensor, q_scale: Tensor, p_mean: Tensor, p_scale: Tensor) -> Tensor:
    """The same with PyTorch operations, whose gradients take three times as many passes over memory."""
    r, z = q_scale / p_scale, (q_mean - p_mean) / p_scale  # (..., W)
    return (0.5 * (r.square() + z.square() - 1) - r.log()).sum(-1)  # (..., W) -> (...)


class _GaussianKL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q_mean: Tensor, q_scale: Tensor, p_mean: Tensor, p_scale: Tensor) -> Tensor:
        inverse = p_scale.reciprocal()
        r, z = q_scale * inverse, (q_mean - p_mean).mul_(inverse)  # (..., W)
        ctx.save_for_backward(r, z, inverse)
        ctx.shapes = [tensor.shape for tensor in (q_mean, q_scale, p_mean, p_scale)]
        terms = r.log().neg_().addcmul_(r, r, value=0.5).sub_(0.5)
        return terms.addcmul_(z, z, value=0.5).sum(-1)  # (..., W) -> (...)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        r, z, inverse = ctx.saved_tensors
        scaled, needed = slope.unsqueeze(-1) * inverse, ctx.needs_input_grad  # (..., W), or (..., 1) for one scale
        by_mean = scaled * z if needed[0] or needed[2] else None
        by_q_scale = (r - r.reciprocal()).mul_(scaled) if needed[1] else None
        by_p_scale = (1 - torch.addcmul(r * r, z, z)).mul_(scaled) if needed[3] else None
        by_p_mean = -by_mean if needed[2] and by_mean is not None else None
        gradients = (by_mean if needed[0] else None, by_q_scale, by_p_mean, by_p_scale)
        pairs = zip(gradients, ctx.shapes, strict=True)  # summed over broadcast dimensions
        return tuple(None if gradient is None else gradient.sum_to_size(shape) for gradient, shape in pairs)
