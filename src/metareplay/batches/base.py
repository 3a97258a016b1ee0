"""What a task learns from, step by step: mini-batches without worker processes, resumable at any batch."""

from typing import NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.errors import CheckpointError


class Batch(NamedTuple):
    """Inputs (B, ...) and targets (B,) or (B, C) of a step; ``weight`` is its factor in the step's data term."""

    x: Tensor
    y: Tensor
    weight: float = 1.0


class BatchOrder:
    """Indices of the next mini-batch; every epoch visits each example once, in a new order.

    A batch has no more examples than the data, unless they may ``repeat``.
    """

    def __init__(self, size: int, batch_size: int, generator: Generator, *, repeat: bool = False) -> None:
        self.size, self.batch_size, self.generator = size, batch_size if repeat else min(batch_size, size), generator
        self.order, self.position = torch.empty(0, dtype=torch.int64), 0

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches that visit every example at least once."""
        return -(-self.size // self.batch_size)

    def next(self) -> Tensor:
        """Indices of the next batch (B,); a batch that crosses the end of an epoch takes the rest from the next."""
        chosen = self.order[self.position : self.position + self.batch_size]
        self.position += len(chosen)
        while len(chosen) < self.batch_size:
            self.order = torch.randperm(self.size, generator=self.generator)
            self.position = min(self.size, self.batch_size - len(chosen))
            chosen = torch.cat([chosen, self.order[: self.position]])
        return chosen

    def tensors(self) -> dict[str, Tensor]:
        """Position in the data, for a checkpoint."""
        return {"order": self.order, "position": torch.tensor(self.position), "generator": self.generator.get_state()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue where a checkpoint stopped."""
        if len(tensors["order"]) not in (0, self.size):
            raise CheckpointError(
                f"the checkpoint was made with {len(tensors['order'])} training examples, this task has {self.size}; "
                "the data has changed"
            )
        self.order, self.position = tensors["order"], int(tensors["position"])
        self.generator.set_state(tensors["generator"])


class Batches(Protocol):
    """What one task learns from, step by step."""

    size: int
    """The number of examples a batch represents: the loss is scaled to it."""
    batches_per_epoch: int

    def next(self) -> TaskData:
        """The next mini-batch: inputs (B, ...) and targets (B,) or (B, C)."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Position in the data, for a checkpoint."""
        ...

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue where a checkpoint stopped."""
        ...
