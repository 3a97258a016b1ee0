"""A loss term of which only the gradient is known: the entropy of a distribution whose score was estimated.

The gradient of E log q(w) with respect to the parameters that generated the samples w is E [grad_w log q(w) dw], the
last line of sm:eq:elbo:grad [Henning2021]: it needs only the score at the samples.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def with_score(score: Tensor, weights: Tensor) -> Tensor:
    """A scalar with value 0 and the gradient of E log q, given the score (n, W) at weight samples (n, W).

    Gradients reach the weights only. The value is NaN where the score is not finite, so that divergence is noticed.
    """
    return cast(Tensor, _WithScore.apply(weights, score))


def with_score_reference(score: Tensor, weights: Tensor) -> Tensor:
    """The same with PyTorch operations, which compute a product only to subtract it again."""
    surrogate = (score.detach() * weights).sum(-1).mean()  # last line of eq. sm:eq:elbo:grad; (n, W) -> ()
    return surrogate - surrogate.detach()


class _WithScore(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, score: Tensor) -> Tensor:
        ctx.save_for_backward(score)
        return 0 * score[0].sum().to(weights.dtype)  # NaN where the score is not finite; (W,) -> ()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        (score,) = ctx.saved_tensors
        return score * (slope / len(score)), None  # mean over samples of grad_w log q; (n, W)
