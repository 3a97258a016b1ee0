"""Outputs of a hypernetwork that the squared-distance penalty of some tasks leaves out.

Those which every task's term contains go into the small-matrix form; the few others, near the main network's outputs,
are computed one by one. Subtracting what is left out from the whole would lose small changes beside large ones.
"""

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
import torch.nn.functional as F
from torch import Tensor

from metareplay.kernels.product_distance import OldLayer, product_distance
from metareplay.task_maps.ensemble import EnsembleMap
from metareplay.task_maps.hypernetwork import Hypernetwork


class LeftOut(NamedTuple):
    """Which elements of theta the terms of some tasks leave out."""

    tasks: Sequence[int]
    elements: Tensor
    """True for those left out (T, P)."""

    def of(self, tasks: Sequence[int]) -> Tensor:
        """Those of some of the tasks (R, P)."""
        return self.elements[[self.tasks.index(task) for task in tasks]]

    def of_members(self, ensemble: EnsembleMap) -> "LeftOut":
        """The same for the entries of an ensemble's members."""
        size = ensemble.inner.num_outputs
        return LeftOut(ensemble.entries(self.tasks), self.elements.reshape(-1, size))  # (T, M P) -> (T M, P)


@final
class PartialDistance:
    """The squared distance from an old hypernetwork's outputs, without those left out.

    A plain hypernetwork is divided by rows of its output layer; a chunked one by chunks.
    """

    def __init__(self, old: Hypernetwork, left_out: LeftOut) -> None:
        self.tasks, layer = left_out.tasks, old.output_layer
        rows, chunks, device = len(layer.weight), old.rows([0]).shape[1], layer.weight.device
        count = len(self.tasks)
        slots = torch.arange(old.num_outputs, device=device) if old.slots is None else old.slots
        kept = torch.zeros(count, chunks * rows, dtype=torch.bool, device=device)
        kept[:, slots] = ~left_out.elements.to(device)
        kept = kept.view(count, chunks, rows)  # (T, L R) -> (T, L, R)
        missing = (torch.arange(chunks * rows, device=device) >= old.num_outputs).view(chunks, rows)  # (L, R)
        self.whole = (kept.all(0) | missing).all(1).nonzero().flatten()  # chunks that no task leaves any of
        self.parts = (~(kept.all(0) | missing).all(1)).nonzero().flatten()
        self.rows: Tensor | None = None
        """The output layer's rows that all tasks keep, and below the others; None: chunks are divided instead."""
        self.others: Tensor | None = None
        if chunks == 1:
            self.rows, self.others = kept.all(0)[0].nonzero().flatten(), (~kept.all(0)[0]).nonzero().flatten()
            self.whole = self.parts = torch.zeros(1, dtype=torch.long, device=device)
        self.weight, self.bias = self._take(layer.weight.detach(), self.others), layer.bias.detach()
        self.bias = self._take(self.bias, self.others)
        last = len(self.whole) > 0 and int(self.whole[-1]) == chunks - 1 and self.rows is None
        used = old.num_outputs - (chunks - 1) * rows if last else rows if self.rows is None else len(self.rows)
        self.layer = OldLayer(self._take(layer.weight, self.rows), self._take(layer.bias, self.rows), used)
        """The old output layer of the outputs that all tasks keep."""
        self.kept = kept[:, self.parts] if self.others is None else kept[:, :, self.others]  # (T, L', R')

    @staticmethod
    def _take(values: Tensor, rows: Tensor | None) -> Tensor:
        return values if rows is None else values[rows]

    def __call__(
        self, current: Hypernetwork, tasks: Sequence[int], h: Tensor, v_old: Tensor, weights: Tensor | None
    ) -> Tensor:
        """From hidden activations h (T, L, H) and the old inputs v* = [h*; 1; 0] (T, L, K): ()."""
        layer, h_old = current.output_layer, v_old[..., : h.shape[-1]]
        total = h.new_zeros(())
        if len(self.whole):
            v, v_old = self.layer.inputs(h[:, self.whole]), v_old[:, self.whole]  # (T, L'', K)
            if weights is not None:
                root = weights.sqrt().view(-1, 1, 1)  # (T,) -> (T, 1, 1)
                v, v_old = root * v, root * v_old  # |root(w) (A v - A* v*)|^2 = w |A v - A* v*|^2
            weight, bias = self._take(layer.weight, self.rows), self._take(layer.bias, self.rows)
            total = product_distance(weight, bias, v, v_old, self.layer)
        if self.kept.numel() == 0:
            return total
        h, h_old = h[:, self.parts], h_old[:, self.parts]  # (T, L', H)
        d = self._take(layer.weight, self.others) - self.weight, self._take(layer.bias, self.others) - self.bias
        changes = F.linear(h, *d) + F.linear(h - h_old, self.weight)  # D v + A* e: exactly zero at the checkpoint
        kept = self.kept[[self.tasks.index(task) for task in tasks]]
        squares = changes.masked_fill(~kept, 0.0).square().sum((1, 2))  # eq. hnet:reg:l2; (T, L', R') -> (T,)
        return total + (squares.sum() if weights is None else (weights * squares).sum())
