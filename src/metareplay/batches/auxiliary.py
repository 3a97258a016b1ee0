"""Training with auxiliary outputs: rotations as separate classes, and an output for "none of these classes".

The outputs of a task with C classes are, in this order: its classes; the classes rotated by 90, 180 and 270 degrees
(C outputs each); "other". Those after the first C serve training, and criteria that ask for them.
"""

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Generator, Tensor

from metareplay.batches.base import Batches
from metareplay.batches.transformations import Transformation
from metareplay.benchmarks.base import TaskData

TURNS = 4
"""Orientations of a square image."""
GENERATOR = "other.generator"
"""Name of the stored generator of transformed copies."""


class AuxiliaryOutputs(NamedTuple):
    """The outputs a task is trained with besides those of its classes."""

    rotations: bool = False
    other: bool = False

    def count(self, classes: int) -> int:
        """Their number for a task with ``classes`` classes."""
        return self.other_label(classes) - classes + int(self.other)

    def other_label(self, classes: int) -> int:
        """The index of "other" among the task's outputs, after all orientations of its classes."""
        return classes * (TURNS if self.rotations else 1)


NO_AUXILIARY = AuxiliaryOutputs()


def with_rotations(x: Tensor, y: Tensor, classes: int) -> TaskData:
    """All orientations of square images: (B, C, H, W) -> (4 * B, C, H, W); class c after r quarter turns: c + C r."""
    turned = torch.cat([x.rot90(turn, (-2, -1)) for turn in range(TURNS)])  # (4 * B, C, H, W)
    return TaskData(turned, torch.cat([y + classes * turn for turn in range(TURNS)]))


def transformed_copies(
    x: Tensor, count: int, transformations: Sequence[Transformation], *, generator: Generator
) -> Tensor:
    """Copies of random inputs of a batch (B, ...), each transformed in a random way: (count, ...).

    No input is copied again before all have been.
    """
    order = torch.randperm(len(x), generator=generator)
    rows = order[torch.arange(count) % len(x)]  # (count,)
    chosen = torch.randint(len(transformations), (count,), generator=generator)
    groups = [rows[chosen == number] for number in range(len(transformations))]
    pairs = zip(transformations, groups, strict=True)
    return torch.cat([transform(x, group, generator=generator) for transform, group in pairs])


@final
class AuxiliaryBatches:
    """A task's batches, with what its auxiliary outputs learn from; each copy counts as one more example."""

    def __init__(
        self,
        batches: Batches,
        classes: int,
        outputs: AuxiliaryOutputs,
        *,
        copies: float,
        transformations: Sequence[Transformation],
        generator: Generator,
    ) -> None:
        self.batches, self.classes, self.outputs = batches, classes, outputs
        self.copies, self.transformations, self.generator = copies, transformations, generator
        versions = (TURNS if outputs.rotations else 1) + (copies if outputs.other else 0.0)
        self.size, self.batches_per_epoch = round(versions * batches.size), batches.batches_per_epoch

    def next(self) -> TaskData:
        upright = self.batches.next()
        batch = with_rotations(*upright, self.classes) if self.outputs.rotations else upright
        if not self.outputs.other:
            return batch
        count = max(1, round(self.copies * len(upright.x)))
        others = transformed_copies(upright.x, count, self.transformations, generator=self.generator)
        labels = batch.y.new_full((count,), self.outputs.other_label(self.classes))
        return TaskData(torch.cat([batch.x, others]), torch.cat([batch.y, labels]))

    def tensors(self) -> dict[str, Tensor]:
        return {**self.batches.tensors(), GENERATOR: self.generator.get_state()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.batches.restore(tensors)
        self.generator.set_state(tensors[GENERATOR])
