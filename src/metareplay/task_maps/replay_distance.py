"""The squared change of a hypernetwork's outputs, without generating them where that is cheaper.

The L2 replay penalty [Henning2021, eq. hnet:reg:l2] sums |out - out*|^2 over old tasks; `kernels/product_distance.py`
computes it from small matrices. A task's term is weighted by multiplying the output layer's inputs, old and new, by the
root of its weight.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import cast, final

import torch
from torch import Tensor

from metareplay.kernels.product_distance import OldLayer, product_distance
from metareplay.task_maps.base import TaskMap
from metareplay.task_maps.ensemble import EnsembleMap
from metareplay.task_maps.hypernetwork import Hypernetwork
from metareplay.task_maps.left_out import LeftOut, PartialDistance


def small_matrices_pay(task_map: TaskMap, num_tasks: int, *, stored: bool = False) -> bool:
    """Whether the small-matrix form needs fewer multiplications.

    It takes 4 width^2 against 3 rows * width per output column, or 4 where the old outputs are not stored.
    """
    if isinstance(task_map, EnsembleMap):
        return small_matrices_pay(task_map.inner, num_tasks * task_map.members, stored=stored)
    hypernetwork = cast(Hypernetwork, task_map)
    rows, width = num_tasks * hypernetwork.rows([0]).shape[1], hypernetwork.output_layer.in_features + 1
    return (3 if stored else 4) * rows > 4 * width


@final
class SquaredChange:
    """How far a hypernetwork's outputs are from those of an old, fixed one.

    For the tasks in ``stored`` the old inputs of its output layer are cached at first use; for others they are computed
    every time. Outputs that are ``left_out`` of a task's term are free to change.
    """

    def __init__(self, old: TaskMap, stored: Sequence[int] = (), left_out: LeftOut | None = None) -> None:
        self.old, self.stored, self.left_out = old, list(stored), left_out
        self.members: SquaredChange | None = None
        if isinstance(old, EnsembleMap):
            of_members = None if left_out is None else left_out.of_members(old)
            self.members = SquaredChange(old.inner, old.entries(stored), of_members)

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

        ``targets`` are the old outputs (T, P) if they were stored. ``weights`` (T,) multiply the tasks' terms; None: 1.
        ``small_matrices`` forces one form or the other; by default the cheaper one is used.
        For an ensemble it is the mean over its members, so that a strength means the same as without one.
        """
        if self.members is not None:
            ensemble = cast(EnsembleMap, current)
            if targets is not None:
                targets = targets.reshape(-1, ensemble.inner.num_outputs)  # (T, M P) -> (T M, P)
            weights = None if weights is None else weights.repeat_interleave(ensemble.members)  # (T,) -> (T M,)
            entries = ensemble.entries(tasks)
            inner = self.members(
                ensemble.inner, entries, targets=targets, weights=weights, small_matrices=small_matrices
            )
            return inner / ensemble.members
        if small_matrices is None:
            small_matrices = small_matrices_pay(current, len(tasks), stored=targets is not None)
        if small_matrices:
            return self._small_matrix_form(cast(Hypernetwork, current), tasks, weights)
        if targets is None:
            with torch.no_grad():
                targets = self.old.thetas(tasks)
        changes = current.thetas(tasks) - targets  # (T, P)
        if self.left_out is not None:
            changes = changes.masked_fill(self.left_out.of(tasks), 0.0)
        squares = changes.square()  # eq. hnet:reg:l2; (T, P)
        return squares.sum() if weights is None else (weights * squares.sum(1)).sum()  # (T, P) -> ()

    @cached_property
    def _partial(self) -> PartialDistance | None:
        return None if self.left_out is None else PartialDistance(cast(Hypernetwork, self.old), self.left_out)

    @cached_property
    def _old_layer(self) -> OldLayer:
        if self._partial is not None:
            return self._partial.layer
        old = cast(Hypernetwork, self.old)
        layer, chunks = old.output_layer, old.rows([0]).shape[1]
        return OldLayer(layer.weight, layer.bias, used=old.num_outputs - (chunks - 1) * len(layer.weight))

    @torch.no_grad()
    def _old_inputs(self, tasks: Sequence[int]) -> Tensor:
        """v* of some tasks: (T, L, K)."""
        if not self.stored:
            return self._old_layer.inputs(cast(Hypernetwork, self.old).hidden(tasks))
        return (
            self._stored_inputs
            if list(tasks) == self.stored
            else self._stored_inputs[[self.stored.index(task) for task in tasks]]
        )

    @cached_property
    def _stored_inputs(self) -> Tensor:
        return self._old_layer.inputs(cast(Hypernetwork, self.old).hidden(self.stored))

    def _small_matrix_form(self, current: Hypernetwork, tasks: Sequence[int], weights: Tensor | None) -> Tensor:
        h, v_old = current.hidden(tasks), self._old_inputs(tasks)  # (T, L, H), (T, L, K)
        if self._partial is not None:
            return self._partial(current, tasks, h, v_old, weights)
        v = self._old_layer.inputs(h)  # (T, L, H) -> (T, L, K)
        if weights is not None:
            root = weights.sqrt().view(-1, 1, 1)  # (T,) -> (T, 1, 1)
            v, v_old = root * v, root * v_old  # |root(w) (A v - A* v*)|^2 = w |A v - A* v*|^2
        layer = current.output_layer
        return product_distance(layer.weight, layer.bias, v, v_old, self._old_layer)
