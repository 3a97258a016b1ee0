"""The squared change of a hypernetwork's outputs, without generating them where that is cheaper.

The L2 replay penalty [Henning2021, eq. hnet:reg:l2] sums |out - out*|^2 over old tasks. With the output layer
out = A v, where A = [W b] and v = [h; 1], and their old values A*, v*, write D = A - A* and e = v - v*. Then
out - out* = D v + A* e, and its summed square over all rows of inputs (V and E hold them) is

    f = <D'D, V'V> + 2 <A*'D, E'V> + <A*'A*, E'E>,

where <., .> is the sum of the products of elements; its slopes are

    df/dD = 2 (D V'V + A* E'V),    df/dV = 2 (V (D'D + D'A*) + E (A*'D + A*'A*)),

the second with E moving along. All are small matrices but four products with the output layer, whatever the number of tasks.
Nothing cancels: at D = E = 0 value and slopes are exactly zero. A task's term is weighted by the root of its weight in v and v*.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from metareplay.task_maps.base import TaskMap
from metareplay.task_maps.ensemble import EnsembleMap
from metareplay.task_maps.hypernetwork import Hypernetwork


def small_matrices_pay(task_map: TaskMap, num_tasks: int, *, stored: bool = False) -> bool:
    """Whether the small-matrix form takes fewer multiplications: 4 width^2 against 3 rows * width per output column, or 4 where the old
    outputs are not stored."""
    if isinstance(task_map, EnsembleMap):
        return small_matrices_pay(task_map.inner, num_tasks * task_map.members, stored=stored)
    hypernetwork = cast(Hypernetwork, task_map)
    rows, width = num_tasks * hypernetwork.rows([0]).shape[1], hypernetwork.output_layer.in_features + 1
    return (3 if stored else 4) * rows > 4 * width


@final
class SquaredChange:
    """How far a hypernetwork's outputs are from those of an old one that stays as it is.

    Of the tasks in ``stored`` the old inputs of its output layer are kept, once they are needed; of others they are computed each time.
    """

    def __init__(self, old: TaskMap, stored: Sequence[int] = ()) -> None:
        self.old, self.stored = old, list(stored)
        self.members = SquaredChange(old.inner, old.entries(stored)) if isinstance(old, EnsembleMap) else None

    def __call__(
        self,
        current: TaskMap,
        tasks: Sequence[int],
        *,
        targets: Tensor | None = None,
        weights: Tensor | None = None,
        small_matrices: bool | None = None,
    ) -> Tensor:
        """Sum over tasks and outputs of the squared difference; gradients reach ``current``.

        ``targets`` are the old outputs (T, P) if they were stored. ``weights`` (T,) multiply the terms of the tasks; None: all 1.
        ``small_matrices`` forces one form or the other; by default the cheaper one is taken.
        Of an ensemble it is the mean over its members, so that a strength means the same as without one.
        """
        if self.members is not None:
            ensemble = cast(EnsembleMap, current)
            targets = None if targets is None else targets.reshape(-1, ensemble.inner.num_outputs)  # (T, M P) -> (T M, P)
            weights = None if weights is None else weights.repeat_interleave(ensemble.members)  # (T,) -> (T M,)
            entries = ensemble.entries(tasks)
            inner = self.members(ensemble.inner, entries, targets=targets, weights=weights, small_matrices=small_matrices)
            return inner / ensemble.members
        if small_matrices is None:
            small_matrices = small_matrices_pay(current, len(tasks), stored=targets is not None)
        if small_matrices:
            return self._small_matrix_form(cast(Hypernetwork, current), tasks, weights)
        if targets is None:
            with torch.no_grad():
                targets = self.old.thetas(tasks)
        squares = (current.thetas(tasks) - targets).square()  # eq. hnet:reg:l2; (T, P)
        return squares.sum() if weights is None else (weights * squares.sum(1)).sum()  # (T, P) -> ()

    @cached_property
    def _output_layer(self) -> "_OutputLayer":
        return _OutputLayer(cast(Hypernetwork, self.old))

    @torch.no_grad()
    def _old_inputs(self, tasks: Sequence[int]) -> Tensor:
        """v* of some tasks: (T, L, K)."""
        if not self.stored:
            return self._output_layer.inputs(cast(Hypernetwork, self.old).hidden(tasks))
        return self._stored_inputs if list(tasks) == self.stored else self._stored_inputs[[self.stored.index(task) for task in tasks]]

    @cached_property
    def _stored_inputs(self) -> Tensor:
        return self._output_layer.inputs(cast(Hypernetwork, self.old).hidden(self.stored))

    def _small_matrix_form(self, current: Hypernetwork, tasks: Sequence[int], weights: Tensor | None) -> Tensor:
        v = self._output_layer.inputs(current.hidden(tasks))  # (T, L, K)
        v_old = self._old_inputs(tasks)
        if weights is not None:
            v, v_old = (weights.sqrt().view(-1, 1, 1) * each for each in (v, v_old))  # |root(w) (A v - A* v*)|^2 = w |A v - A* v*|^2
        layer = current.output_layer
        return cast(Tensor, _ProductDistance.apply(layer.weight, layer.bias, v, v_old, self._output_layer))


class _OutputLayer:
    """The old output layer A*, and A*'A* of the columns that all chunks use and of those that the last one leaves out.

    K = H + 1 is rounded up to a multiple of 8 with zeros, which fill the processor's registers: products take a tenth less time.
    """

    def __init__(self, old: Hypernetwork) -> None:
        layer = old.output_layer
        rows, width = layer.weight.shape
        self.a = torch.zeros(rows, -(-(width + 1) // 8) * 8, dtype=layer.weight.dtype, device=layer.weight.device)
        self.a[:, :width], self.a[:, width] = layer.weight.detach(), layer.bias.detach()  # (R, K)
        used = old.num_outputs - (old.rows([0]).shape[1] - 1) * rows  # outputs of the last chunk that exist
        self.parts = slice(0, used), slice(used, rows)
        self.squares = [self.a[part].T @ self.a[part] for part in self.parts]  # (K, K) each

    def inputs(self, h: Tensor) -> Tensor:
        """v = [h; 1; 0]: (T, L, H) -> (T, L, K)."""
        one = torch.zeros(self.a.shape[1] - h.shape[-1], dtype=h.dtype, device=h.device)
        one[0] = 1
        return torch.cat([h, one.expand(*h.shape[:-1], -1)], dim=-1)


class _ProductDistance(torch.autograd.Function):
    """f of the head of this file, from W (R, H), b (R,), v and v* (T, L, K)."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, v: Tensor, v_old: Tensor, old: _OutputLayer) -> Tensor:
        width, d, e = weight.shape[1], torch.zeros_like(old.a), v - v_old  # (R, K), (T, L, K)
        torch.sub(weight, old.a[:, :width], out=d[:, :width])
        torch.sub(bias, old.a[:, width], out=d[:, width])
        last = _products(v[:, -1], e[:, -1])
        others = _products(v[:, :-1].flatten(0, 1), e[:, :-1].flatten(0, 1))
        all_chunks = [one + other for one, other in zip(last, others, strict=True)]
        value, kept = v.new_zeros(()), []
        for part, square, (vv, ev, ee) in zip(old.parts, old.squares, (all_chunks, others), strict=True):
            dd, ad = d[part].T @ d[part], old.a[part].T @ d[part]  # (K, K)
            value = value + (dd * vv).sum() + 2 * (ad * ev).sum() + (square * ee).sum()
            kept += [vv, ev, dd + ad.T, ad + square]
        ctx.save_for_backward(d, v, e, *kept)
        ctx.old, ctx.width = old, width
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        d, v, e, *kept = ctx.saved_tensors
        of_d, of_v = torch.empty_like(d), torch.empty_like(v)
        first, second = kept[:4], kept[4:]
        for part, (vv, ev, *_) in zip(ctx.old.parts, (first, second), strict=True):
            torch.mm(d[part], 2 * slope * vv, out=of_d[part])  # df/dD = 2 (D V'V + A* E'V); (R, K)
            of_d[part].addmm_(ctx.old.a[part], 2 * slope * ev)
        for chunks, by_v, by_e in ((-1, *first[2:]), (slice(0, -1), first[2] + second[2], first[3] + second[3])):
            of_v[:, chunks] = v[:, chunks] @ (2 * slope * by_v) + e[:, chunks] @ (2 * slope * by_e)  # df/dV; (T, L, K)
        return of_d[:, : ctx.width], of_d[:, ctx.width], of_v, None, None


def _products(v: Tensor, e: Tensor) -> list[Tensor]:
    """V'V, E'V and E'E of inputs (N, K): (K, K) each."""
    return [v.T @ v, e.T @ v, e.T @ e]
