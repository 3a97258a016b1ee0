"""Select or reorder a tensor's columns that form a few long blocks: concatenated views are faster than an index."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

MAX_BLOCKS = 1000
"""With more blocks than this an index is as fast."""


class ColumnBlocks(NamedTuple):
    """Where a tensor's last dimension is split, and which of the blocks are joined in which order."""

    sizes: Sequence[int]
    chosen: Sequence[int]
    columns: Tensor

    @classmethod
    def of(cls, index: Tensor, total: int) -> "ColumnBlocks":
        """The blocks of ``x[..., index]``, for x with ``total`` columns and an index without repetitions."""
        runs = index.cpu().tensor_split(torch.nonzero(index.cpu().diff() != 1).flatten() + 1)  # of consecutive columns
        edges = [(int(run[0]), int(run[0]) + len(run)) for run in runs if len(run)]
        bounds = sorted({0, total, *(bound for edge in edges for bound in edge)})
        place = {bound: number for number, bound in enumerate(bounds)}
        chosen = [number for start, stop in edges for number in range(place[start], place[stop])]
        return cls([stop - start for start, stop in pairwise(bounds)], chosen, index)

    def take(self, x: Tensor) -> Tensor:
        """``x[..., columns]``."""
        if not self.chosen or len(self.chosen) > MAX_BLOCKS:
            return x[..., self.columns.to(x.device)]
        if list(self.chosen) == list(range(len(self.sizes))):
            return x  # all of them, as they are
        parts = x.split(list(self.sizes), dim=-1)
        return (
            parts[self.chosen[0]]
            if len(self.chosen) == 1
            else torch.cat([parts[number] for number in self.chosen], dim=-1)
        )

    def put(self, x: Tensor, values: Tensor) -> None:
        """``x[..., columns] = values``, in place; a view from ``take`` is there already."""
        if not self.chosen or len(self.chosen) > MAX_BLOCKS:
            x[..., self.columns.to(x.device)] = values
            return
        parts = x.split(list(self.sizes), dim=-1)
        if len(self.chosen) == 1 and values.is_set_to(parts[self.chosen[0]]):
            return
        for number, block in zip(
            self.chosen, values.split([self.sizes[number] for number in self.chosen], dim=-1), strict=True
        ):
            parts[number].copy_(block)
