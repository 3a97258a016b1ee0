"""Batches of a task's own data: shuffled epochs over data in memory."""

from typing import final

from torch import Generator, Tensor

from metareplay.batches.augment import AUGMENTATIONS, Augmentation
from metareplay.batches.base import BatchOrder
from metareplay.benchmarks.base import TaskData


@final
class TaskBatches:
    """A task learns from its own data, augmented if an augmentation is named."""

    def __init__(
        self,
        data: TaskData,
        batch_size: int,
        generator: Generator,
        augmentation: Augmentation = "none",
        *,
        fill: bool = False,
    ) -> None:
        self.data, self.size = data, len(data.x)
        self.augment = AUGMENTATIONS.get(augmentation)
        self.order = BatchOrder(self.size, batch_size, generator, repeat=fill)
        self.batches_per_epoch = self.order.batches_per_epoch

    def next(self) -> TaskData:
        index = self.order.next()
        x = self.data.x[index]
        return TaskData(
            x if self.augment is None else self.augment(x, generator=self.order.generator), self.data.y[index]
        )

    def tensors(self) -> dict[str, Tensor]:
        return self.order.tensors()

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.order.restore(tensors)
