"""Statistics of batch normalisation, and all other buffers of a network: each task has a set of its own.

[Henning2021, SM sec. SplitCIFAR-10: statistics are stored for each task, and loaded when it is selected]
"""

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor, nn

from metareplay.errors import CheckpointError, ConfigError
from metareplay.nets.weights import Buffers

START = "start"


@final
class TaskBuffers:
    """The buffers of every task, a set for each member of an ensemble. A new task starts as the first network was built."""

    def __init__(self, members: int = 1) -> None:
        self.members = members
        self.start: Buffers = {}
        self.tasks: list[list[Buffers]] = []

    def begun(self, network: nn.Module) -> Buffers:
        """What one more task would start with in this network."""
        fresh = {name: buffer.detach().clone() for name, buffer in network.named_buffers()}
        return grown(self.start, fresh) if self.tasks else fresh

    def add_task(self, network: nn.Module) -> None:
        """Make room for one more task; the others' buffers grow if those of the network have."""
        self.start = self.begun(network)
        self.tasks = [[grown(old, self.start) for old in sets] for sets in self.tasks]
        self.tasks.append([dict(self.start) for _ in range(self.members)])

    def per_task(self) -> int:
        """How many numbers a task keeps."""
        return max((sum(tensor.numel() for tensor in self._changed(sets).values()) for sets in self.tasks), default=0)

    def _changed(self, sets: list[Buffers]) -> Buffers:
        """The buffers that training has changed, those of several members stacked; constants are kept once for all tasks."""
        names = [name for name, tensor in self.start.items() if any(not torch.equal(own[name], tensor) for own in sets)]
        stacked = {name: torch.stack([own[name] for own in sets]) for name in names}  # (M, ...)
        return stacked if self.members > 1 else {name: tensor[0] for name, tensor in stacked.items()}

    def to(self, device: torch.device) -> None:
        """Live on this device from now on."""
        self.start = {name: tensor.to(device) for name, tensor in self.start.items()}
        self.tasks = [
            [{name: tensor.to(device) for name, tensor in own.items()} for own in sets] for sets in self.tasks
        ]

    def is_finite(self) -> bool:
        """Whether all numbers are finite."""
        return all(bool(tensor.isfinite().all()) for sets in self.tasks for own in sets for tensor in own.values())

    def tensors(self) -> dict[str, Tensor]:
        """Everything that has to be stored."""
        stored = {f"{START}.{name}": tensor for name, tensor in self.start.items()} if self.tasks else {}
        for task, sets in enumerate(self.tasks):
            stored |= {f"{task}.{name}": tensor for name, tensor in self._changed(sets).items()}
        return stored

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Have these values for as many tasks as there are; what is not named was never changed."""
        for key in sorted(tensors, key=lambda key: not key.startswith(START)):  # the start first: tasks differ from it
            (owner, _, name), tensor = key.partition("."), tensors[key]
            each = tensor.unsqueeze(0) if owner == START or self.members == 1 else tensor  # (M, ...)
            if name not in self.start or each.shape[1:] != self.start[name].shape or len(each) not in (1, self.members):
                raise CheckpointError(
                    f"the stored buffer {name!r} does not fit this network; it belongs to another configuration"
                )
            if owner == START:
                self.start[name] = tensor
            for sets in self.tasks if owner == START else [self.tasks[int(owner)]]:
                for own, value in zip(sets, each.expand(self.members, *each.shape[1:]), strict=True):
                    own[name] = value


def grown(old: Mapping[str, Tensor], fresh: Mapping[str, Tensor]) -> Buffers:
    """Old values as the leading corner of each buffer of a network with more outputs; fresh values elsewhere."""
    found = dict(fresh)
    for name, tensor in old.items():
        new = fresh.get(name)
        if new is None or new.dim() != tensor.dim() or any(b < a for a, b in zip(tensor.shape, new.shape, strict=True)):
            raise ConfigError(
                f"the network cannot be given more outputs: its buffer {name!r} of shape {tuple(tensor.shape)} is no part of "
                f"{'any' if new is None else tuple(new.shape)} afterwards; let the number of outputs change the last layer alone"
            )
        found[name] = new.clone()
        found[name][tuple(slice(0, size) for size in tensor.shape)] = tensor
    return found
