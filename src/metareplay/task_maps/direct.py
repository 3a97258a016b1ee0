"""Task maps that store theta directly: one for all tasks, or one per task."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Generator, Tensor, nn

from metareplay.errors import ConfigError
from metareplay.task_maps.base import Start, TaskMap, TaskMapPart, register_task_map


def moved(theta: Tensor, old_positions: Tensor, initial: Tensor) -> Tensor:
    """A grown theta: old values at their new positions, initial values elsewhere."""
    grown = initial.clone()
    grown[old_positions] = theta.detach()
    return grown


@final
class SharedParameters(TaskMap):
    """One theta for all tasks (fine-tuning, joint training, prior-focused methods).

    Its second half may be ``constant`` while a task is learned: values that are computed after the task.
    """

    one_theta = True

    def __init__(self, num_outputs: int, *, constant_half: bool = False) -> None:
        super().__init__()
        self.num_outputs, self.num_tasks = num_outputs, 0
        self.shared: nn.Parameter
        self.constant: Tensor | None
        self.register_buffer("constant", torch.zeros(num_outputs // 2) if constant_half else None)
        self._hold(torch.zeros(num_outputs))

    def _hold(self, theta: Tensor) -> None:
        trained = len(theta) if self.constant is None else len(theta) // 2
        self.shared = nn.Parameter(theta[:trained].clone())
        if self.constant is not None:
            self.constant = theta[trained:].clone()

    def add_task(self, start: Start, *, generator: Generator) -> None:
        if self.num_tasks == 0:
            self._hold(start.theta)
        self.num_tasks += 1

    def remove_task(self, task: int) -> None:
        raise ConfigError(
            "all tasks of this method share the same weights, so what one of them taught cannot be removed; learn "
            "the other tasks again, or choose a method with weights for each task, such as pr-bbb"
        )

    def thetas(self, tasks: Sequence[int]) -> Tensor:
        theta = self.shared if self.constant is None else torch.cat([self.shared, self.constant])  # (P,)
        single = theta.unsqueeze(0)  # (P,) -> (1, P)
        return single if len(tasks) == 1 else single.expand(len(tasks), -1)  # (1, P) -> (T, P), whose gradient is a sum

    def trained_theta(self, task: int) -> Tensor:
        return self.shared

    def grow(self, old_positions: Tensor, start: Start, *, generator: Generator) -> None:
        self._hold(moved(self.theta(0), old_positions, start.theta))
        self.num_outputs = len(start.theta)

    def trained_parameters(self, task: int) -> list[nn.Parameter]:
        return [self.shared]

    def per_task_parameters(self) -> int:
        return 0

    def num_parameters(self) -> int:
        return self.shared.numel()


@final
class PerTaskParameters(TaskMap):
    """One theta per task, learned from scratch (separate posteriors)."""

    def __init__(self, num_outputs: int) -> None:
        super().__init__()
        self.num_outputs, self.num_tasks = num_outputs, 0
        self.separate = nn.ParameterList()

    def add_task(self, start: Start, *, generator: Generator) -> None:
        self.separate.append(nn.Parameter(start.theta.clone()))
        self.num_tasks += 1

    def remove_task(self, task: int) -> None:
        self.separate = nn.ParameterList([theta for index, theta in enumerate(self.separate) if index != task])
        self.num_tasks -= 1

    def thetas(self, tasks: Sequence[int]) -> Tensor:
        if len(tasks) == 1:
            return self.separate[tasks[0]].unsqueeze(0)  # (P,) -> (1, P), a view
        return torch.stack([self.separate[task] for task in tasks])  # (T, P)

    def grow(self, old_positions: Tensor, start: Start, *, generator: Generator) -> None:
        self.separate = nn.ParameterList(
            [nn.Parameter(moved(theta, old_positions, start.theta)) for theta in self.separate]
        )
        self.num_outputs = len(start.theta)

    def trained_parameters(self, task: int) -> list[nn.Parameter]:
        return [self.separate[task]]

    def per_task_parameters(self) -> int:
        return self.num_outputs


register_task_map(
    TaskMapPart(
        name="shared",
        phrase="parameters that all tasks share",
        build=lambda parts, size, generator, members: SharedParameters(size),
        shared=True,
    )
)
register_task_map(
    TaskMapPart(
        name="shared-precisions",
        phrase="parameters that all tasks share, half of them constant",
        build=lambda parts, size, generator, members: SharedParameters(size, constant_half=True),
        shared=True,
    )
)
register_task_map(
    TaskMapPart(
        name="per-task",
        phrase="separate parameters for every task",
        build=lambda parts, size, generator, members: PerTaskParameters(size),
        separate=True,
    )
)
