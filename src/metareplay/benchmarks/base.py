"""A benchmark is a stream of tasks that can be iterated, indexed and sliced."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, NamedTuple, overload

from torch import Tensor

from metareplay.errors import DataError
from metareplay.scaling import Scaling

Problem = Literal["classification", "regression"]


class Scenario(StrEnum):
    """What differs from task to task, and so what has to be inferred at test time."""

    TASK = "task"
    """Each task has its own classes and is known at test time."""
    DOMAIN = "domain"
    """All tasks share their classes or targets; the inputs change."""
    CLASS = "class"
    """Each task has its own classes; the task has to be inferred to name the class."""


class TaskData(NamedTuple):
    """Inputs and targets: ``y`` holds class indices into ``Task.classes`` (int64) or real targets (N, D)."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Task:
    """One task: its training and test data, and what its class indices stand for (empty for regression)."""

    name: str
    train: TaskData
    test: TaskData
    classes: tuple[Hashable, ...] = ()

    def __post_init__(self) -> None:
        for part, (x, y) in (("train", self.train), ("test", self.test)):
            if len(x) != len(y):
                raise DataError(
                    f"task {self.name!r}: {len(x)} {part} inputs but {len(y)} targets; both need one row per example"
                )
            if self.classes and len(y) and (y.min() < 0 or y.max() >= len(self.classes)):
                raise DataError(
                    f"task {self.name!r}: {part} targets must be class indices from 0 to {len(self.classes) - 1}"
                )
        if len(self.train.x) == 0:
            raise DataError(f"task {self.name!r} has no training examples; every task needs at least one")


class TaskInfo(NamedTuple):
    """What a task is called, and what its class indices stand for (empty for regression)."""

    name: str
    classes: tuple[Hashable, ...] = ()


def label_columns(tasks: Sequence[TaskInfo]) -> tuple[list[Hashable], list[int]]:
    """All labels in the order in which they were learned, and for each class of each task the place of its label."""
    places: dict[Hashable, int] = {}
    columns = [places.setdefault(label, len(places)) for task in tasks for label in task.classes]
    return list(places), columns


@dataclass(frozen=True)
class Benchmark:
    """A named stream of tasks; ``make_task(i)`` builds the i-th on demand.

    Where a task's data is expensive to build, ``make_test`` builds only its test data and ``describe`` needs no data.
    """

    name: str
    problem: Problem
    scenario: Scenario
    input_shape: tuple[int, ...]
    num_tasks: int
    make_task: Callable[[int], Task]
    make_test: Callable[[int], TaskData] | None = None
    describe: Callable[[int], TaskInfo] | None = None
    scaling: Scaling = field(default_factory=lambda: Scaling({}))
    """How the tasks' data were standardised; a user's inputs are standardised the same way."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """How a row or an image of a user's files becomes an input: ``data.base.Examples.inputs``."""
    fingerprint: str | None = None
    """Checksum of a user's own data and of how it was split into tasks."""
    notes: tuple[str, ...] = ()
    """What a user should know about how the tasks were made."""
    pixels: Scaling = field(default_factory=lambda: Scaling({}))
    """How pixels in [0, 1] were turned into inputs, where the benchmark did so by itself."""
    truth: Callable[[int, Tensor], Tensor] | None = None
    """The noise-free targets of the i-th task, where they are known; NaN outside the task's domain; (N,) -> (N,)."""
    beginning_of: int = 0
    """The number of tasks of the whole stream, if these are only its first ones, by which settings are chosen."""

    @property
    def expected_tasks(self) -> int:
        """The number of tasks for which a model should have room."""
        return max(self.num_tasks, self.beginning_of)

    def test(self, index: int) -> TaskData:
        """The test data of one task."""
        return self.make_task(index).test if self.make_test is None else self.make_test(index)

    def width(self, task: Task) -> int:
        """The number of outputs a task needs: one per class, or per regression target."""
        return len(task.classes) if self.problem == "classification" else task.train.y.shape[1]

    def task_infos(self) -> list[TaskInfo]:
        """Name and classes of every task."""
        if self.describe is None:
            return [TaskInfo(task.name, task.classes) for task in self]
        return [self.describe(index) for index in range(self.num_tasks)]

    def __len__(self) -> int:
        return self.num_tasks

    def __iter__(self) -> Iterator[Task]:
        return (self.make_task(index) for index in range(self.num_tasks))

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> "Benchmark": ...
    def __getitem__(self, index: int | slice) -> "Task | Benchmark":
        chosen = range(self.num_tasks)[index]  # raises IndexError like any sequence
        if isinstance(chosen, int):
            return self.make_task(chosen)
        test, describe, truth = self.make_test, self.describe, self.truth
        return replace(
            self,
            num_tasks=len(chosen),
            make_task=lambda i: self.make_task(chosen[i]),
            make_test=None if test is None else lambda i: test(chosen[i]),
            describe=None if describe is None else lambda i: describe(chosen[i]),
            truth=None if truth is None else lambda i, x: truth(chosen[i], x),
        )
