"""Who stores theta: the contract of task maps, and the two that store it directly.

A task map gives each task a flat parameter vector theta (P,). Tasks are added one at a time, never counted up front.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Generator, Tensor, nn


class Start(NamedTuple):
    """Where a new task's theta starts: a value for maps that store it, wished variances for those that generate it."""

    theta: Tensor
    variances: Tensor | None = None
    weights: Tensor | None = None
    """Which elements are weights of the main network, or their means: (P,) bool."""


class TaskMap(nn.Module, ABC):
    """Task -> theta. All trained parameters of a continual learner live in one of these."""

    num_tasks: int
    num_outputs: int

    @abstractmethod
    def add_task(self, start: Start, *, generator: Generator) -> None:
        """Make room for one more task; maps that store theta directly start it at ``start.theta`` (P,)."""

    @abstractmethod
    def thetas(self, tasks: Sequence[int]) -> Tensor:
        """The parameter vectors of some tasks: (T, P)."""

    @abstractmethod
    def grow(self, kept: Tensor, start: Start, *, generator: Generator) -> None:
        """Let theta grow to the length of ``start.theta``; old element i moves to position ``kept[i]``, its value unchanged."""

    @abstractmethod
    def trained_parameters(self, task: int) -> list[nn.Parameter]:
        """What learning this task may change."""

    @abstractmethod
    def per_task_parameters(self) -> int:
        """How many parameters one more task adds."""

    def theta(self, task: int) -> Tensor:
        """The parameter vector of one task: (P,)."""
        return self.thetas([task]).squeeze(0)  # (1, P) -> (P,)

    def trained_theta(self, task: int) -> Tensor:
        """The part of theta that learning the task changes, in one piece from its start: all of it, but for maps that say otherwise."""
        return self.theta(task)

    def num_parameters(self) -> int:
        """All stored numbers."""
        return sum(parameter.numel() for parameter in self.parameters())


def moved(theta: Tensor, kept: Tensor, initial: Tensor) -> Tensor:
    """A grown theta: old values at their new positions, initial values elsewhere."""
    grown = initial.clone()
    grown[kept] = theta.detach()
    return grown


@final
class SharedParameters(TaskMap):
    """One theta for all tasks (fine-tuning, joint training, prior-focused methods).

    Its second half may be ``constant`` while a task is learned: numbers that are computed once it is done.
    """

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

    def thetas(self, tasks: Sequence[int]) -> Tensor:
        single = (self.shared if self.constant is None else torch.cat([self.shared, self.constant])).unsqueeze(0)  # (P,) -> (1, P)
        return single if len(tasks) == 1 else single.expand(len(tasks), -1)  # (1, P) -> (T, P), whose gradient is a sum

    def trained_theta(self, task: int) -> Tensor:
        return self.shared

    def grow(self, kept: Tensor, start: Start, *, generator: Generator) -> None:
        self._hold(moved(self.theta(0), kept, start.theta))
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

    def thetas(self, tasks: Sequence[int]) -> Tensor:
        if len(tasks) == 1:
            return self.separate[tasks[0]].unsqueeze(0)  # (P,) -> (1, P), a view
        return torch.stack([self.separate[task] for task in tasks])  # (T, P)

    def grow(self, kept: Tensor, start: Start, *, generator: Generator) -> None:
        self.separate = nn.ParameterList([nn.Parameter(moved(theta, kept, start.theta)) for theta in self.separate])
        self.num_outputs = len(start.theta)

    def trained_parameters(self, task: int) -> list[nn.Parameter]:
        return [self.separate[task]]

    def per_task_parameters(self) -> int:
        return self.num_outputs
