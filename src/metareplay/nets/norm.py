"""Batch-normalisation statistics and all other buffers of a network: each task has its own set.

[Henning2021, SM sec. SplitCIFAR-10: statistics are stored for each task, and loaded when it is selected]
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import final

import torch
from torch import Tensor, nn

from metareplay.errors import CheckpointError, ConfigError, DataError
from metareplay.nets.frozen import own_buffers
from metareplay.nets.weights import Buffers

START = "start"


@final
class TaskBuffers:
    """The buffers of every task, one set per ensemble member. A new task starts with those of the first network."""

    def __init__(self, members: int = 1) -> None:
        self.members = members
        self.start: Buffers = {}
        self.tasks: list[list[Buffers]] = []

    def initial(self, network: nn.Module) -> Buffers:
        """The buffers that a new task would start with in this network."""
        fresh = {name: buffer.detach().clone() for name, buffer in own_buffers(network).items()}
        return grown(self.start, fresh) if self.tasks else fresh

    def add_task(self, network: nn.Module) -> None:
        """Add a task; the other tasks' buffers grow if the network's have."""
        before, self.start = _shapes(self.start), self.initial(network)
        if _shapes(self.start) != before:
            self.tasks = [[grown(old, self.start) for old in sets] for sets in self.tasks]
        self.tasks.append([dict(self.start) for _ in range(self.members)])

    def grow(self, network: nn.Module) -> None:
        """All tasks' buffers grow with those of the network."""
        if self.tasks:
            self.start = self.initial(network)
            self.tasks = [[grown(old, self.start) for old in sets] for sets in self.tasks]

    def remove_task(self, task: int) -> None:
        """Remove the buffers of a task; later tasks move down."""
        del self.tasks[task]

    def per_task(self) -> int:
        """The number of values stored per task."""
        return max((sum(tensor.numel() for tensor in self._changed(sets).values()) for sets in self.tasks), default=0)

    def _changed(self, sets: list[Buffers]) -> Buffers:
        """The buffers that training has changed, stacked over members; constants are stored once for all tasks."""
        names = [
            name
            for name, tensor in self.start.items()
            if any(not torch.equal(buffers[name], tensor) for buffers in sets)
        ]
        stacked = {name: torch.stack([buffers[name] for buffers in sets]) for name in names}  # (M, ...)
        return stacked if self.members > 1 else {name: tensor[0] for name, tensor in stacked.items()}

    def to(self, device: torch.device) -> None:
        """Move to this device."""
        self.start = {name: tensor.to(device) for name, tensor in self.start.items()}
        self.tasks = [
            [{name: tensor.to(device) for name, tensor in buffers.items()} for buffers in sets] for sets in self.tasks
        ]

    def is_finite(self) -> bool:
        """Whether all values are finite."""
        return all(
            bool(tensor.isfinite().all()) for sets in self.tasks for buffers in sets for tensor in buffers.values()
        )

    def tensors(self) -> dict[str, Tensor]:
        """Everything that has to be stored."""
        stored = {f"{START}.{name}": tensor for name, tensor in self.start.items()} if self.tasks else {}
        for task, sets in enumerate(self.tasks):
            stored |= {f"{task}.{name}": tensor for name, tensor in self._changed(sets).items()}
        return stored

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Set these values for the existing tasks; buffers that are not named were never changed."""
        for key in sorted(tensors, key=lambda key: not key.startswith(START)):  # the start first: tasks override it
            (owner, _, name), tensor = key.partition("."), tensors[key]
            members = tensor.unsqueeze(0) if owner == START or self.members == 1 else tensor  # (M, ...)
            if (
                name not in self.start
                or members.shape[1:] != self.start[name].shape
                or len(members) not in (1, self.members)
            ):
                raise CheckpointError(
                    f"the stored buffer {name!r} does not fit this network; it belongs to another configuration"
                )
            if owner == START:
                self.start[name] = tensor
            for sets in self.tasks if owner == START else [self.tasks[int(owner)]]:
                for buffers, value in zip(sets, members.expand(self.members, *members.shape[1:]), strict=True):
                    buffers[name] = value


def _shapes(buffers: Buffers) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in buffers.items()}


def grown(old: Mapping[str, Tensor], fresh: Mapping[str, Tensor]) -> Buffers:
    """Old values as the leading corner of each buffer of a network with more outputs; fresh values elsewhere."""
    result = dict(fresh)
    for name, tensor in old.items():
        new = fresh.get(name)
        if new is None or new.dim() != tensor.dim() or any(b < a for a, b in zip(tensor.shape, new.shape, strict=True)):
            raise ConfigError(
                f"the network cannot be given more outputs: its buffer {name!r} of shape {tuple(tensor.shape)} then "
                f"{'is missing' if new is None else f'has shape {tuple(new.shape)}'}; "
                "let the number of outputs change only the last layer"
            )
        result[name] = new.clone()
        result[name][tuple(slice(0, size) for size in tensor.shape)] = tensor
    return result


@contextmanager
def clear_batch_norm() -> Iterator[None]:
    """A clear message for what batch normalisation cannot do."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise DataError(
            "batch normalisation cannot be trained on one example at a time; give the task more examples, "
            "use a larger batch size, or choose a network without it"
        ) from error
