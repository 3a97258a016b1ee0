"""Several entries of a task map for each task, one per member of an ensemble [Henning2021, SM sec. Deep Ensembles].

Around a hypernetwork this means several embeddings per task.
"""

from collections.abc import Sequence
from typing import final

from torch import Generator, Tensor, nn

from metareplay.task_maps.base import Start, TaskMap


@final
class EnsembleMap(TaskMap):
    """Member m of task t is entry t M + m of an inner map; theta holds the members' entries side by side."""

    def __init__(self, inner: TaskMap, members: int) -> None:
        super().__init__()
        self.inner, self.members = inner, members
        self.num_outputs, self.num_tasks = members * inner.num_outputs, 0

    def entries(self, tasks: Sequence[int]) -> list[int]:
        """The entries of the inner map for these tasks' members."""
        return [task * self.members + member for task in tasks for member in range(self.members)]

    def _share(self, start: Start, member: int) -> Start:
        # (M P,) -> (P,)
        variances, weights = (None if part is None else part.chunk(self.members)[member] for part in start[1:])
        return Start(start.theta.chunk(self.members)[member], variances, weights)

    def add_task(self, start: Start, *, generator: Generator) -> None:
        for member in range(self.members):
            self.inner.add_task(self._share(start, member), generator=generator)
        self.num_tasks += 1

    def remove_task(self, task: int) -> None:
        for entry in reversed(self.entries([task])):
            self.inner.remove_task(entry)
        self.num_tasks -= 1

    def thetas(self, tasks: Sequence[int]) -> Tensor:
        return self.inner.thetas(self.entries(tasks)).reshape(len(tasks), self.num_outputs)  # (T M, P) -> (T, M P)

    def grow(self, old_positions: Tensor, start: Start, *, generator: Generator) -> None:
        inner_positions = old_positions[: self.inner.num_outputs]  # all members grow the same way
        self.inner.grow(inner_positions, self._share(start, 0), generator=generator)
        self.num_outputs = len(start.theta)

    def trained_parameters(self, task: int) -> list[nn.Parameter]:
        parameters = [parameter for entry in self.entries([task]) for parameter in self.inner.trained_parameters(entry)]
        return list({id(parameter): parameter for parameter in parameters}.values())

    def per_task_parameters(self) -> int:
        return self.members * self.inner.per_task_parameters()
