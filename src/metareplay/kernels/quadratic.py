"""KL(q* || q) to second order [Henning2021, sm:eq:kl:taylor]: 1/2 (theta - theta*)' R (theta - theta*), R diagonal.

R is the Fisher information, the negative expected Hessian of log q, so the result is never negative.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def quadratic_change(information: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """1/2 sum_i information_i (new_i - old_i)^2: (..., P) three times -> (...); gradients reach ``new`` only."""
    return cast(Tensor, _Quadratic.apply(information, old, new))


def quadratic_change_reference(information: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """The same with PyTorch operations, which compute R (theta - theta*) again for the gradient."""
    return 0.5 * (information.detach() * (new - old.detach()).square()).sum(-1)  # sm:eq:kl:taylor; (..., P) -> (...)


class _Quadratic(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, information: Tensor, old: Tensor, new: Tensor) -> Tensor:
        change = new - old
        pull = information * change  # the gradient, needed for the value anyway; (..., P)
        ctx.save_for_backward(pull)
        return 0.5 * torch.linalg.vecdot(change, pull)  # sm:eq:kl:taylor; (..., P) -> (...)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[None, None, Tensor]:
        (pull,) = ctx.saved_tensors
        return None, None, slope.unsqueeze(-1) * pull
