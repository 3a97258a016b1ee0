"""Who stores theta: the contract of task maps.

A task map gives each task a flat parameter vector theta (P,). Tasks are added one at a time, without a limit.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Generator, Tensor, nn

from metareplay.errors import ConfigError
from metareplay.parts import Registry
from metareplay.settings import Composition, Part


class Start(NamedTuple):
    """Where a new task's theta starts: a value for maps that store it, target variances for those that generate it."""

    theta: Tensor
    variances: Tensor | None = None
    weights: Tensor | None = None
    """Which elements are weights of the main network, or their means: (P,) bool."""


class TaskMap(nn.Module, ABC):
    """Task -> theta. All trained parameters of a continual learner live in one of these."""

    num_tasks: int
    num_outputs: int
    one_theta: bool = False
    """Whether all tasks have the same theta."""

    @abstractmethod
    def add_task(self, start: Start, *, generator: Generator) -> None:
        """Add a task; maps that store theta directly start it at ``start.theta`` (P,)."""

    @abstractmethod
    def thetas(self, tasks: Sequence[int]) -> Tensor:
        """The parameter vectors of some tasks: (T, P)."""

    @abstractmethod
    def grow(self, old_positions: Tensor, start: Start, *, generator: Generator) -> None:
        """Grow theta to the length of ``start.theta``; element i moves to ``old_positions[i]``, its value unchanged."""

    def remove_task(self, task: int) -> None:
        """Remove what is stored for one task alone; later tasks move down."""
        raise ConfigError(f"{type(self).__name__} cannot remove a task; learn the model again without it")

    @abstractmethod
    def trained_parameters(self, task: int) -> list[nn.Parameter]:
        """The parameters that learning this task may change."""

    @abstractmethod
    def per_task_parameters(self) -> int:
        """The number of parameters that one more task adds."""

    def theta(self, task: int) -> Tensor:
        """The parameter vector of one task: (P,)."""
        return self.thetas([task]).squeeze(0)  # (1, P) -> (P,)

    def trained_theta(self, task: int) -> Tensor:
        """The leading part of theta that learning the task changes: all of it unless a map overrides this."""
        return self.theta(task)

    def num_parameters(self) -> int:
        """The number of stored parameters."""
        return sum(parameter.numel() for parameter in self.parameters())


class BuildTaskMap(Protocol):
    """Builds a task map for theta of this size; one task has ``members`` entries (1 without an ensemble)."""

    def __call__(self, parts: Composition, size: int, generator: Generator, members: int) -> TaskMap: ...


@dataclass(frozen=True, kw_only=True)
class TaskMapPart(Part):
    """A task map that methods can name."""

    build: BuildTaskMap
    generated: bool = False
    """Whether a hypernetwork generates theta."""
    separate: bool = False
    """Whether learning one task leaves the parameters of all others unchanged."""
    shared: bool = False
    """Whether all tasks have the same theta, so that tasks with different classes need separate outputs."""


TASK_MAPS: Registry[TaskMapPart] = Registry("task map", "stores theta in")
register_task_map = TASK_MAPS.register
