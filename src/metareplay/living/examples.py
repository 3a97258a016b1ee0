"""A user's data as tasks of a stored model: read as ``metareplay run --data`` reads them, encoded as its first task."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from metareplay.benchmarks.assemble import fingerprint_of
from metareplay.benchmarks.base import Problem, Task, TaskData, TaskInfo
from metareplay.benchmarks.own import as_targets, chosen_problem, groups_of, order_notes
from metareplay.data.base import FILLING, Examples
from metareplay.data.periods import Period, periods_of
from metareplay.data.reading import read_examples
from metareplay.data.settings import DataSettings
from metareplay.errors import ConfigError, DataError


@dataclass(frozen=True)
class TaskExamples:
    """The examples of one task, in the user's units."""

    name: str
    x: Tensor
    """(N, ...), float32."""
    labels: Sequence[Hashable]
    """One for each example; empty for regression."""
    y: Tensor
    """Real targets (N, D); class indices into ``classes`` (N,)."""
    classes: tuple[Hashable, ...]
    """The different labels, sorted."""
    fingerprint: str
    periods: Mapping[str, Period] = field(default_factory=dict)
    """The first and last day of each date column."""

    def targets(self, known: TaskInfo | None = None) -> tuple[Tensor, TaskInfo, int]:
        """Targets by the classes of a task; its new classes follow the known ones."""
        if not self.labels:
            return self.y, known or TaskInfo(self.name), int(self.y.shape[1])
        classes = tuple(dict.fromkeys((*(known.classes if known else ()), *self.classes)))
        place = torch.tensor([classes.index(label) for label in self.classes])
        info = TaskInfo(known.name if known else self.name, classes)
        return place[self.y], info, len(classes)


@dataclass(frozen=True)
class NewData:
    """What was read."""

    problem: Problem
    tasks: Sequence[TaskExamples]
    inputs: Mapping[str, Any]
    """How further data become inputs."""
    notes: Sequence[str]


def read_tasks(
    settings: DataSettings,
    *,
    name: str | None,
    known: Mapping[str, Any] | None = None,
    problem: Problem | None = None,
    shape: tuple[int, ...] | None = None,
) -> NewData:
    """The tasks in a user's data: one if it has a name, else those that the data or ``tasks_by`` name.

    ``known``, ``problem`` and ``shape`` are those of a model that has learned already.
    """
    if name is not None and settings.tasks_by is not None:
        raise ConfigError("--name is for one task and --tasks-by for several; give only one of them")
    read = read_examples(_as_before(settings, known or {}), known or {})
    chosen, why = chosen_problem(read, settings.model_copy(update={"problem": problem or settings.problem}))
    examples = as_targets(read, chosen)
    if name is not None:
        groups = [(name, torch.arange(len(examples.x)))]
    elif examples.task is None and settings.tasks_by is None:
        raise ConfigError("give the task a name with --name, or say which column names it with --tasks-by")
    else:
        groups = groups_of(examples, settings, chosen)
    inputs, x = dict(examples.inputs), examples.x.float()
    first = groups[0][1]
    if inputs.pop(FILLING, False) or bool(x.isnan().any()):
        inputs["fill"] = _means(x[first], groups[0][0]).tolist()
        x = torch.where(x.isnan(), torch.tensor(inputs["fill"]), x)
    if shape is not None and tuple(x.shape[1:]) != shape and x.shape[1:].numel() == torch.Size(shape).numel():
        x = x.reshape(len(x), *shape)
    tasks = [_task(examples, x, title, rows, chosen) for title, rows in groups]
    notes = [*([] if problem else [f"{chosen}: {why}"]), *examples.notes]
    notes += order_notes(examples, settings, [title for title, _ in groups], "--set data.task_order=A,B,...")
    return NewData(chosen, tasks, inputs, notes)


def _as_before(settings: DataSettings, known: Mapping[str, Any]) -> DataSettings:
    """Read text and images as those of earlier tasks were read, unless something else is asked for."""
    changed: dict[str, Any] = {}
    if settings.decimal is None and known.get("decimal") is not None:
        changed["decimal"] = known["decimal"]
    if settings.image_size is None and known.get("kind") == "images" and known.get("resize"):
        changed["image_size"] = tuple(known["size"])
    return settings.model_copy(update=changed)


def _means(x: Tensor, title: str) -> Tensor:
    means = x.nanmean(0)  # (N, D) -> (D,)
    if bool(means.isnan().any()):
        raise DataError(
            f"input {int(means.isnan().nonzero()[0])} has no values in task {title!r}, so there is no mean to fill in; "
            "leave the column out with --ignore, or choose --set data.missing=drop"
        )
    return means


def _task(examples: Examples, x: Tensor, title: str, rows: Tensor, problem: Problem) -> TaskExamples:
    if examples.test is not None:
        rows = rows[~examples.test[rows]]  # test examples are for tests
    if not len(rows):
        raise DataError(f"task {title!r} has no training examples; add some")
    inputs, y = x[rows], examples.y[rows]
    periods = periods_of(examples.x[rows], examples.inputs)
    if problem == "regression":
        data = TaskData(inputs, y.float())
        return TaskExamples(title, *data[:1], (), data.y, (), _fingerprint(problem, title, data, ()), periods)
    present = y.unique()  # sorted
    classes = tuple(examples.labels[index] for index in present.tolist())
    data = TaskData(inputs, torch.searchsorted(present, y))
    labels = [classes[index] for index in data.y.tolist()]
    fingerprint = _fingerprint(problem, title, data, classes)
    return TaskExamples(title, data.x, labels, data.y, classes, fingerprint, periods)


def _fingerprint(problem: Problem, title: str, data: TaskData, classes: tuple[Hashable, ...]) -> str:
    return fingerprint_of(problem, [Task(title, data, TaskData(data.x[:0], data.y[:0]), classes)])
