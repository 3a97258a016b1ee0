"""Mini-batches of modified coresets: a task's own examples, and those of other tasks with uninformative targets.

[Henning2021, sm:sec:coresets, the modified coresets below eq. sm:eq:coresets]
"""

from collections.abc import Sequence
from typing import Literal, final

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from metareplay.batches.base import BatchOrder
from metareplay.benchmarks.base import TaskData

Others = Literal["uniform", "random", "none"]


@final
class CoresetBatches:
    """Batches for one task from all coresets, concatenated in ``everything``; ``own`` are the task's rows.

    Targets are the labels of the task's own examples and, for inputs of other tasks, equal probabilities for all
    classes or random labels, redrawn for each batch. Without other tasks it is just the task's coreset, with class or
    real targets.
    """

    def __init__(
        self,
        everything: TaskData,
        own: range,
        classes: int,
        *,
        others: Others,
        own_share: float | None,
        batch_size: int,
        generator: Generator,
    ) -> None:
        self.everything, self.own, self.classes, self.others, self.generator = (
            everything,
            own,
            classes,
            others,
            generator,
        )
        rows = torch.arange(len(everything.x))
        is_own = (rows >= own.start) & (rows < own.stop)
        inside, outside = rows[is_own], rows[~is_own] if others != "none" else rows[:0]
        self.size = len(inside) + len(outside)  # |C~^(t)|
        batch_size = min(batch_size, self.size)
        self.parts = [(torch.cat([inside, outside]), BatchOrder(self.size, batch_size, generator))]
        if own_share is not None and len(outside):
            count = min(max(1, round(own_share * batch_size)), batch_size - 1)
            self.parts = [
                (part, BatchOrder(len(part), share, generator, repeat=True))
                for part, share in ((inside, count), (outside, batch_size - count))
            ]
        self.batches_per_epoch = -(-self.size // batch_size)

    def next(self) -> TaskData:
        """The next batch; probabilities as targets (B, C) where there are examples of other tasks."""
        chosen = torch.cat([rows[order.next()] for rows, order in self.parts])  # (B,)
        x, y = self.everything.x[chosen], self.everything.y[chosen]
        if self.others == "none":
            return TaskData(x, y)
        is_own = (chosen >= self.own.start) & (chosen < self.own.stop)
        return TaskData(
            x, torch.where(is_own.unsqueeze(1), self._one_hot(y.where(is_own, 0)), self._uninformative(len(chosen)))
        )

    def _one_hot(self, y: Tensor) -> Tensor:
        return F.one_hot(y, self.classes).to(self.everything.x.dtype)  # (B,) -> (B, C)

    def _uninformative(self, count: int) -> Tensor:
        """Targets for inputs of other tasks: (B, C)."""
        if self.others == "random":
            return self._one_hot(torch.randint(self.classes, (count,), generator=self.generator))
        return torch.full((count, self.classes), 1 / self.classes, dtype=self.everything.x.dtype)

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"{part}.{name}": tensor
            for part, (_, order) in enumerate(self.parts)
            for name, tensor in order.tensors().items()
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for part, (_, order) in enumerate(self.parts):
            order.restore(
                {
                    name.removeprefix(f"{part}."): tensor
                    for name, tensor in tensors.items()
                    if name.startswith(f"{part}.")
                }
            )


def coreset_batches(
    coresets: Sequence[TaskData],
    classes: Sequence[int],
    *,
    others: Others,
    own_share: float | None,
    batch_size: int,
    generators: Sequence[Generator],
) -> tuple[TaskData, list[CoresetBatches]]:
    """All examples, in memory once, and the batches that each task draws from them."""
    everything = TaskData(torch.cat([part.x for part in coresets]), torch.cat([part.y for part in coresets]))
    batches_by_task, start = [], 0
    for coreset, count, generator in zip(coresets, classes, generators, strict=True):
        own = range(start, start + len(coreset.x))
        batches = CoresetBatches(
            everything, own, count, others=others, own_share=own_share, batch_size=batch_size, generator=generator
        )
        batches_by_task.append(batches)
        start = own.stop
    return everything, batches_by_task
