"""The squared change of a hypernetwork's outputs, without generating them where that is cheaper.

The L2 replay penalty [Henning2021, eq. hnet:reg:l2] sums |out - out*|^2 over old tasks. With the output layer
out = A v, where A = [W b] and v = [h; 1], and their old values A*, v*, write D = A - A* and e = v - v*. Then
out - out* = D v + A* e, and its summed square over all rows is

    tr(D'D VV') + 2 tr(D'A* EV') + tr(A*'A* EE'),

all small matrices whose cost does not grow with the number of rows. In this form nothing cancels: at D = E = 0 the
value and its gradient are exactly zero. A task's term is weighted by the root of its weight in v and v*.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from metareplay.hypernets.ensemble import EnsembleMap
from metareplay.hypernets.hypernet import Hypernetwork
from metareplay.hypernets.task_maps import TaskMap


def small_matrices_pay(task_map: TaskMap, num_tasks: int) -> bool:
    """Whether the small-matrix form takes fewer multiplications: 4 width^2 against 3 rows * width per output column."""
    if isinstance(task_map, EnsembleMap):
        return small_matrices_pay(task_map.inner, num_tasks * task_map.members)
    hypernetwork = cast(Hypernetwork, task_map)
    rows, width = num_tasks * hypernetwork.rows([0]).shape[1], hypernetwork.output_layer.in_features + 1
    return 3 * rows > 4 * width


def squared_change(
    current: TaskMap,
    old: TaskMap,
    tasks: Sequence[int],
    *,
    targets: Tensor | None = None,
    weights: Tensor | None = None,
    small_matrices: bool | None = None,
) -> Tensor:
    """Sum over tasks and outputs of the squared difference of two hypernetworks' outputs; gradients reach ``current``.

    ``targets`` are the old outputs (T, P) if they were stored. ``weights`` (T,) multiply the terms of the tasks; None: all 1.
    ``small_matrices`` forces one form or the other; by default the cheaper one is taken.
    Of an ensemble it is the mean over its members, so that a strength means the same as without one.
    """
    if isinstance(current, EnsembleMap) and isinstance(old, EnsembleMap):
        targets = None if targets is None else targets.reshape(-1, current.inner.num_outputs)  # (T, M P) -> (T M, P)
        weights = None if weights is None else weights.repeat_interleave(current.members)  # (T,) -> (T M,)
        entries, inner, before = current.entries(tasks), current.inner, old.inner
        return squared_change(inner, before, entries, targets=targets, weights=weights, small_matrices=small_matrices) / current.members
    if small_matrices is None:
        small_matrices = small_matrices_pay(current, len(tasks))
    if not small_matrices:
        if targets is None:
            with torch.no_grad():
                targets = old.thetas(tasks)
        squares = (current.thetas(tasks) - targets).square()  # eq. hnet:reg:l2; (T, P)
        return squares.sum() if weights is None else (weights * squares.sum(1)).sum()  # (T, P) -> ()
    return _small_matrix_form(cast(Hypernetwork, current), cast(Hypernetwork, old), tasks, weights)


def _small_matrix_form(current: Hypernetwork, old: Hypernetwork, tasks: Sequence[int], weights: Tensor | None) -> Tensor:
    a = torch.cat([current.output_layer.weight, current.output_layer.bias.unsqueeze(1)], dim=1)  # (R, H + 1)
    v = _with_ones(current.hidden(tasks))  # (T, L, H + 1)
    with torch.no_grad():
        a_old = torch.cat([old.output_layer.weight, old.output_layer.bias.unsqueeze(1)], dim=1)
        v_old = _with_ones(old.hidden(tasks))
    if weights is not None:
        v, v_old = (weights.sqrt().view(-1, 1, 1) * each for each in (v, v_old))  # |root(w) (A v - A* v*)|^2 = w |A v - A* v*|^2
    row_size = a.shape[0]
    used = current.num_outputs - (v.shape[1] - 1) * row_size  # outputs of the last chunk that exist
    full = v.shape[1] if used == row_size else v.shape[1] - 1
    total = _product_distance(a - a_old, a_old, v[:, :full].flatten(0, 1), v_old[:, :full].flatten(0, 1))
    if full < v.shape[1]:  # the last chunk is cut
        total = total + _product_distance((a - a_old)[:used], a_old[:used], v[:, -1], v_old[:, -1])
    return total


def _with_ones(h: Tensor) -> Tensor:
    return torch.cat([h, torch.ones_like(h[..., :1])], dim=-1)  # (T, L, H) -> (T, L, H + 1)


def _product_distance(d: Tensor, a_old: Tensor, v: Tensor, v_old: Tensor) -> Tensor:
    """|d v + a_old (v - v_old)|^2 summed over rows: d, a_old (R, K), v, v_old (N, K)."""
    e = v - v_old
    return ((d.T @ d) * (v.T @ v)).sum() + 2 * ((d.T @ a_old) * (v.T @ e)).sum() + ((a_old.T @ a_old) * (e.T @ e)).sum()
