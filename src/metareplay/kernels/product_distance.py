"""The squared change of a linear layer's outputs, without computing the outputs.

The L2 replay penalty [Henning2021, eq. hnet:reg:l2] sums |out - out*|^2 over old tasks. With the output layer
out = A v, where A = [W b] and v = [h; 1], and their old values A*, v*, write D = A - A* and e = v - v*. Then
out - out* = D v + A* e, and its summed square over all rows of inputs (V and E hold them) is

    f = <D'D, V'V> + 2 <A*'D, E'V> + <A*'A*, E'E>,

where <., .> is the sum of elementwise products; its gradients are

    df/dD = 2 (D V'V + A* E'V),    df/dV = 2 (V (D'D + D'A*) + E (A*'D + A*'A*)),

the second with E changing along with V. All matrices are small except in four products with the output layer,
regardless of the number of tasks. Nothing cancels: at D = E = 0 value and gradients are exactly zero.
"""

from typing import Any, cast, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@final
class OldLayer:
    """The old output layer A* = [W* b*], and A*'A* of the rows that all chunks use and of those the last one lacks.

    A task's outputs come in chunks of R; of the last chunk only the first ``used`` exist.
    K = H + 1 is padded with zeros to a multiple of 8, to fill the processor's registers: products take a tenth less
    time.
    """

    def __init__(self, weight: Tensor, bias: Tensor, used: int) -> None:
        rows, width = weight.shape
        self.a = torch.zeros(rows, -(-(width + 1) // 8) * 8, dtype=weight.dtype, device=weight.device)
        self.a[:, :width], self.a[:, width] = weight.detach(), bias.detach()  # (R, K)
        self.used = used
        self.parts = slice(0, used), slice(used, rows)
        self.squares = [self.a[part].T @ self.a[part] for part in self.parts]  # (K, K) each

    def inputs(self, h: Tensor) -> Tensor:
        """v = [h; 1; 0]: (T, L, H) -> (T, L, K)."""
        constant = torch.zeros(self.a.shape[1] - h.shape[-1], dtype=h.dtype, device=h.device)
        constant[0] = 1
        return torch.cat([h, constant.expand(*h.shape[:-1], -1)], dim=-1)


def product_distance(weight: Tensor, bias: Tensor, v: Tensor, v_old: Tensor, old: OldLayer) -> Tensor:
    """f from W (R, H), b (R,), v and v* (T, L, K): (); gradients reach W, b and v only."""
    return cast(Tensor, _ProductDistance.apply(weight, bias, v, v_old, old))


def product_distance_reference(weight: Tensor, bias: Tensor, v: Tensor, v_old: Tensor, old: OldLayer) -> Tensor:
    """The same from the T L R outputs themselves."""
    width = weight.shape[1]
    outputs = v[..., :width] @ weight.T + v[..., width : width + 1] * bias  # A v; (T, L, K) -> (T, L, R)
    squares = (outputs - v_old.detach() @ old.a.T).square()  # |A v - A* v*|^2; (T, L, R)
    return squares[:, :-1].sum() + squares[:, -1, : old.used].sum()  # eq. hnet:reg:l2; (T, L, R) -> ()


class _ProductDistance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, v: Tensor, v_old: Tensor, old: OldLayer) -> Tensor:
        width, d, e = weight.shape[1], torch.zeros_like(old.a), v - v_old  # (R, K), (T, L, K)
        torch.sub(weight, old.a[:, :width], out=d[:, :width])
        torch.sub(bias, old.a[:, width], out=d[:, width])
        last = _products(v[:, -1], e[:, -1])
        others = _products(v[:, :-1].flatten(0, 1), e[:, :-1].flatten(0, 1))
        all_chunks = [of_last + of_others for of_last, of_others in zip(last, others, strict=True)]
        value, matrices = v.new_zeros(()), []
        for part, square, (vv, ev, ee) in zip(old.parts, old.squares, (all_chunks, others), strict=True):
            dd, ad = d[part].T @ d[part], old.a[part].T @ d[part]  # (K, K)
            # f in the docstring of this file
            value = value + (dd * vv).sum() + 2 * (ad * ev).sum() + (square * ee).sum()
            matrices += [vv, ev, dd + ad.T, ad + square]
        ctx.save_for_backward(d, v, e, *matrices)
        ctx.old, ctx.width = old, width
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        d, v, e, *matrices = ctx.saved_tensors
        of_d, of_v = torch.empty_like(d), torch.empty_like(v)
        first, second = matrices[:4], matrices[4:]
        for part, (vv, ev, *_) in zip(ctx.old.parts, (first, second), strict=True):
            torch.mm(d[part], 2 * slope * vv, out=of_d[part])  # df/dD = 2 (D V'V + A* E'V); (R, K)
            of_d[part].addmm_(ctx.old.a[part], 2 * slope * ev)
        for chunks, by_v, by_e in ((-1, *first[2:]), (slice(0, -1), first[2] + second[2], first[3] + second[3])):
            of_v[:, chunks] = v[:, chunks] @ (2 * slope * by_v) + e[:, chunks] @ (2 * slope * by_e)  # df/dV; (T, L, K)
        return of_d[:, : ctx.width], of_d[:, ctx.width], of_v, None, None


def _products(v: Tensor, e: Tensor) -> list[Tensor]:
    """V'V, E'V and E'E of inputs (N, K): (K, K) each."""
    return [v.T @ v, e.T @ v, e.T @ e]
