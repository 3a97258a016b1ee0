"""Changes of known tasks: further examples, another name, removal; and how far each has moved."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from torch import Tensor

from metareplay.arrays import Inputs, Targets
from metareplay.benchmarks.base import TaskData, TaskInfo
from metareplay.errors import ConfigError
from metareplay.learner.audit import TaskAudit, audit
from metareplay.learner.learner import ContinualLearner
from metareplay.scaling import Scaling
from metareplay.training.loop import TaskTrainer


class NewExamples(NamedTuple):
    """Examples for a known task, and what is known of it with them."""

    x: Tensor
    y: Tensor
    info: TaskInfo
    width: int
    """Classes or targets."""


class TaskVerbs(ABC):
    """What can be done with tasks that were learned."""

    tasks: list[TaskInfo]
    scaling: Scaling

    @abstractmethod
    def _trained(self) -> ContinualLearner: ...

    @abstractmethod
    def _task_index(self, task: str | int) -> int: ...

    @abstractmethod
    def _features(self, x: Tensor, *, keep: bool) -> Tensor: ...

    @abstractmethod
    def _new_examples(self, x: Inputs, y: Targets | None, info: TaskInfo) -> NewExamples:
        """Examples of any kind for a known task."""

    @abstractmethod
    def _train(
        self,
        learner: ContinualLearner,
        begin: Callable[[], TaskTrainer],
        name: str,
        progress: bool,
        finish: Callable[[TaskTrainer], Any],
    ) -> None: ...

    def update_task(self, task: str | int, X: Inputs, y: Targets | None = None, *, progress: bool = False) -> Self:
        """Train a known task further on new examples, of its own classes or of new ones.

        Its posterior is the prior of the update; all other tasks are protected as when one is added. If anything goes
        wrong, the model is left unchanged.
        """
        learner, index = self._trained(), self._task_index(task)
        new = self._new_examples(X, y, self.tasks[index])
        scaling = self.scaling.following(new.x)
        data = TaskData(self._features(scaling.x(new.x), keep=True), scaling.y(new.y))
        self._train(
            learner,
            lambda: learner.begin_revision(index, data, new.width),
            new.info.name,
            progress,
            lambda _: learner.finish_revision(data, [*self.tasks[:index], new.info, *self.tasks[index + 1 :]]),
        )
        self.tasks[index], self.scaling = new.info, scaling
        return self

    def remove_task(self, task: str | int) -> Self:
        """Remove a task and all that is stored for it alone; the answers of other tasks, if given, stay the same.

        What it taught a hypernetwork that all tasks share stays there, but not the embedding that gives access to it.
        """
        learner, index = self._trained(), self._task_index(task)
        learner.remove_task(index)
        del self.tasks[index]
        return self

    def rename_task(self, task: str | int, name: str) -> Self:
        """Give a task another name."""
        index, names = self._task_index(task), [info.name for info in self.tasks]
        if name in names and names[index] != name:
            raise ConfigError(f"a task named {name!r} already exists; choose another name (known: {', '.join(names)})")
        self.tasks[index] = self.tasks[index]._replace(name=str(name))
        return self

    def audit(self) -> list[TaskAudit]:
        """How far every task has moved since it was learned or last updated, without old data."""
        return audit(self._trained(), [info.name for info in self.tasks])
