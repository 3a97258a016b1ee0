"""Choose or reorder the columns of a tensor that come in a few long pieces: joined views, where an index would visit each number."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

MOST_PIECES = 1000
"""Beyond so many pieces an index is as fast."""


class ColumnBlocks(NamedTuple):
    """Where a tensor's last dimension is cut, and which of the pieces are joined in which order."""

    sizes: Sequence[int]
    chosen: Sequence[int]
    columns: Tensor

    @classmethod
    def of(cls, index: Tensor, total: int) -> "ColumnBlocks":
        """Those that make ``x[..., index]``, for x with so many columns and an index without repetitions."""
        runs = index.cpu().tensor_split(torch.nonzero(index.cpu().diff() != 1).flatten() + 1)  # of successive columns
        edges = [(int(run[0]), int(run[0]) + len(run)) for run in runs if len(run)]
        bounds = sorted({0, total, *(bound for edge in edges for bound in edge)})
        place = {bound: number for number, bound in enumerate(bounds)}
        chosen = [number for start, stop in edges for number in range(place[start], place[stop])]
        return cls([stop - start for start, stop in pairwise(bounds)], chosen, index)

    def take(self, x: Tensor) -> Tensor:
        """``x[..., columns]``."""
        if not self.chosen or len(self.chosen) > MOST_PIECES:
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
        """``x[..., columns] = values``, in place; what ``take`` gave as a view is there already."""
        if not self.chosen or len(self.chosen) > MOST_PIECES:
            x[..., self.columns.to(x.device)] = values
            return
        parts = x.split(list(self.sizes), dim=-1)
        if len(self.chosen) == 1 and values.is_set_to(parts[self.chosen[0]]):
            return
        for number, piece in zip(
            self.chosen, values.split([self.sizes[number] for number in self.chosen], dim=-1), strict=True
        ):
            parts[number].copy_(piece)
