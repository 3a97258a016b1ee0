"""A user's tasks as a benchmark: checked, fingerprinted, missing values filled, standardised by the first task."""

import hashlib
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from metareplay.benchmarks.base import Benchmark, Problem, Scenario, Task, TaskData
from metareplay.data.base import FILLING
from metareplay.errors import ConfigError, DataError
from metareplay.scaling import Scaling
from metareplay.seeding import generator_for


def assemble(
    name: str,
    problem: Problem,
    scenario: Scenario | None,
    tasks: Sequence[Task],
    *,
    inputs: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    standardise: bool = True,
) -> Benchmark:
    """A benchmark from tasks with raw inputs. Everything is converted once."""
    _check(tasks, problem)
    scenario = chosen_scenario(problem, scenario, tasks)
    fingerprint, inputs = fingerprint_of(problem, tasks), dict(inputs or {})
    tasks = _filled(tasks, inputs)
    first = tasks[0].train
    scaling = Scaling.of(first.x.float(), first.y, regression=problem == "regression") if standardise else Scaling({})
    for task in tasks[1:]:
        scaling = scaling.following(task.train.x.float())
    ready = [_changed(task, lambda part: TaskData(scaling.x(part.x.float()), scaling.y(part.y))) for task in tasks]
    shape = tuple(first.x.shape[1:])
    about: dict[str, Any] = {"scaling": scaling, "inputs": inputs, "fingerprint": fingerprint, "notes": tuple(notes)}
    return Benchmark(name, problem, scenario, shape, len(ready), ready.__getitem__, **about)


def chosen_scenario(problem: Problem, requested: Scenario | None, tasks: Sequence[Task]) -> Scenario:
    """The requested scenario, if it is possible; by default it follows from the classes."""
    same = len({task.classes for task in tasks}) == 1
    if requested is None:
        return Scenario.DOMAIN if problem == "regression" or (same and len(tasks) > 1) else Scenario.CLASS
    if requested is Scenario.DOMAIN and not same:
        raise ConfigError("the scenario domain needs the same classes in every task; choose class or task")
    if requested is Scenario.CLASS and problem == "regression":
        raise ConfigError("the scenario class needs classes; choose domain or task for regression")
    return requested


def chosen_for_testing(y: Tensor, share: float, seed: int, *path: str | int) -> Tensor:
    """Examples held out for testing (N,), bool: a share of each class (of all, for real targets), drawn by the seed."""
    generator, test = generator_for(seed, "test-share", *path), torch.zeros(len(y), dtype=torch.bool)
    groups = [y == label for label in y.unique()] if not y.is_floating_point() else [torch.ones_like(test)]
    for group in groups:
        rows = group.nonzero().squeeze(1)
        count = max(1, round(share * len(rows))) if len(rows) > 1 else 0
        test[rows[torch.randperm(len(rows), generator=generator)[:count]]] = True
    return test


def class_indices(labels: Sequence[Hashable], classes: Sequence[Hashable]) -> Tensor:
    """Labels as indices into the classes (N,)."""
    position = {label: index for index, label in enumerate(classes)}
    return torch.tensor([position[label] for label in labels], dtype=torch.int64)


def _check(tasks: Sequence[Task], problem: Problem) -> None:
    for task in tasks:
        if len(task.test.x) == 0:
            raise DataError(
                f"task {task.name!r} has no test examples; add some, or give it at least two examples of each class"
            )
    classes = {label for task in tasks for label in task.classes}
    if problem == "classification" and len(classes) < 2:
        raise DataError(
            f"all examples have the class {next(iter(classes))!r}: there is nothing to distinguish; "
            "collect examples of another class"
        )


def fingerprint_of(problem: Problem, tasks: Sequence[Task]) -> str:
    """SHA-256 of the raw tasks, in their order."""
    digest = hashlib.sha256(problem.encode())
    for task in tasks:
        digest.update(json.dumps([task.name, [[type(label).__name__, str(label)] for label in task.classes]]).encode())
        for part in (*task.train, *task.test):
            digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
            digest.update(part.contiguous().numpy().data)
    return digest.hexdigest()[:16]


def _filled(tasks: Sequence[Task], inputs: dict[str, Any]) -> Sequence[Task]:
    """Missing inputs (NaN) replaced by the first task's mean, which is recorded in ``inputs``."""
    if not inputs.pop(FILLING, False) and not any(
        bool(part.x.isnan().any()) for task in tasks for part in (task.train, task.test) if part.x.is_floating_point()
    ):
        return tasks
    fill = tasks[0].train.x.nanmean(0)  # (N, D) -> (D,)
    if bool(fill.isnan().any()):
        raise DataError(
            f"input {int(fill.isnan().nonzero()[0])} has no values in the first task ({tasks[0].name}), "
            "so there is no mean to fill in; leave the column out with --ignore, or choose --set data.missing=drop"
        )
    inputs["fill"] = fill.tolist()
    return [_changed(task, lambda part: TaskData(torch.where(part.x.isnan(), fill, part.x), part.y)) for task in tasks]


def _changed(task: Task, change: Callable[[TaskData], TaskData]) -> Task:
    return replace(task, train=change(task.train), test=change(task.test))
