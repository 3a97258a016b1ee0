"""Streams of PyTorch datasets, one per task, as benchmarks; other continual-learning libraries' streams just work."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metareplay.arrays import (
    class_labels,
    dataset_in,
    inputs_and_targets,
    plain_labels,
    to_inputs,
    to_real_targets,
    unpack,
)
from metareplay.benchmarks.assemble import assemble, chosen_for_testing, class_indices
from metareplay.benchmarks.base import Benchmark, Problem, Scenario, Task, TaskData
from metareplay.benchmarks.own import benchmark_of
from metareplay.benchmarks.toy import DATA_SEED
from metareplay.data.base import Examples, Place
from metareplay.data.frame_examples import training_examples
from metareplay.data.settings import DataSettings
from metareplay.errors import ConfigError, DataError


class _Part(NamedTuple):
    """Examples that belong together, and their task label, if they all have the same."""

    x: Tensor
    y: Any
    label: Hashable | None


def stream_benchmark(
    datasets: Iterable[Any],
    test: Iterable[Any] | None = None,
    *,
    name: str = "stream",
    problem: Problem = "classification",
    scenario: Scenario | str | None = None,
    standardise: bool = True,
    test_share: float = 0.2,
    data_seed: int = DATA_SEED,
) -> Benchmark:
    """A benchmark from an iterable of datasets, one per task.

    Each element is a map-style dataset of (input, target) or (input, target, task), an object with such a dataset in
    its attribute ``dataset``, or a pair (X, y) of arrays, or of a data frame and targets or their column's name. A
    dataset whose items have several task labels is split by them. ``test`` has the same tasks, matched by task label
    where the labels are unique, else by position; without it, a share of each task and class is held out for testing.
    """
    requested = None if scenario is None else _scenario(scenario)
    known: dict[str, Any] = {}
    train = _parts(datasets, "stream", known)
    tests = None if test is None else _in_order(_parts(test, "test stream", known), train)
    names, tasks = _names(train), []
    for index, part in enumerate(train):
        test_part = None if tests is None else tests[index]
        for what, checked in (("inputs", part), ("test inputs", test_part)):
            if checked is not None and checked.x.shape[1:] != train[0].x.shape[1:]:
                shapes = tuple(checked.x.shape[1:]), tuple(train[0].x.shape[1:])
                raise DataError(
                    f"task {names[index]!r} has {what} of shape {shapes[0]}, "
                    f"the first task {shapes[1]}; they must match"
                )
        tasks.append(_task(names[index], part, test_part, problem, test_share, data_seed))
    return assemble(name, problem, requested, tasks, inputs=known, standardise=standardise)


def dataset_benchmark(
    dataset: Any,
    test: Any | None = None,
    *,
    tasks_by: str,
    name: str = "dataset",
    task_order: Sequence[str] | None = None,
    test_share: float = 0.2,
    data_seed: int = DATA_SEED,
) -> Benchmark:
    """A labelled PyTorch dataset split into tasks by class: ``tasks_by="classes:2"`` or ``"classes:2,3,4"``."""
    parts = [inputs_and_targets(part, None, None) for part in (dataset, test) if part is not None]
    x, labels = torch.cat([part[0] for part in parts]), [label for part in parts for label in plain_labels(part[1])]
    known = sorted(set(labels), key=lambda label: (str(type(label)), label))
    for row, label in enumerate(labels):
        if not isinstance(label, int | float | str):
            raise DataError(f"the label {label!r} of item {row} is neither a number nor text")
    marks = torch.arange(len(x)) >= len(parts[0][0]) if test is not None else None
    examples = Examples(x, class_indices(labels, known), tuple(known), (Place("item ", range(len(x))),), test=marks)  # type: ignore[arg-type]
    order = None if task_order is None else tuple(task_order)
    settings = DataSettings(tasks_by=tasks_by, task_order=order, test_share=test_share, problem="classification")
    return benchmark_of(examples, settings, name, data_seed)


def _parts(datasets: Iterable[Any], what: str, known: dict[str, Any]) -> list[_Part]:
    """The parts of a stream; the first data frame decides how columns become inputs, which is added to ``known``."""
    whole = dataset_in(datasets)
    elements = [datasets] if whole is not None and _is_one_dataset(whole) else list(datasets)
    if not elements:
        raise DataError(f"the {what} is empty; give at least one dataset")
    parts: list[_Part] = []
    for index, element in enumerate(elements):
        try:
            parts += _split_by_label(element, known)
        except DataError as error:
            raise DataError(f"dataset {index} of the {what}: {error}") from error
    return parts


def _is_one_dataset(dataset: Any) -> bool:
    """Whether the items are examples rather than datasets."""
    return (
        len(dataset) > 0
        and isinstance(first := dataset[0], tuple | list)
        and len(first) >= 2
        and dataset_in(first[0]) is None
    )


def _split_by_label(element: Any, known: dict[str, Any]) -> list[_Part]:
    dataset = dataset_in(element)
    if dataset is None:
        if not isinstance(element, tuple | list) or len(element) != 2:
            raise DataError(f"it is a {type(element).__name__}; give a PyTorch dataset, or a pair (X, y)")
        x, y, described = training_examples(element[0], element[1], known, fresh=not known)
        known.update(described)
        return [_Part(*inputs_and_targets(x, y, None), None)]
    x, y, labels = unpack(dataset)
    x = to_inputs(x, None)
    if labels is None or not all(isinstance(label, int | str) for label in labels):
        return [_Part(x, y, None)]
    parts = []
    for label in dict.fromkeys(labels):
        rows = [row for row, row_label in enumerate(labels) if row_label == label]
        parts.append(_Part(x[rows], [y[row] for row in rows], label))
    return parts


def _scenario(name: Scenario | str) -> Scenario:
    if name not in list(Scenario):
        raise ConfigError(f"scenario={name!r} is unknown; choose {', '.join(Scenario)}")
    return Scenario(name)


def _in_order(tests: list[_Part], train: Sequence[_Part]) -> list[_Part]:
    """The test sets in the order of the tasks."""
    if len(tests) != len(train):
        raise DataError(
            f"the stream has {len(train)} tasks but the test stream {len(tests)}; give one test dataset for each task"
        )
    by_label = {part.label: part for part in tests}
    labels = {part.label for part in train}
    if None in labels | set(by_label) or len(labels) < len(train) or len(by_label) < len(tests):
        return tests
    if odd := [label for label in by_label if label not in labels]:
        raise DataError(
            f"the test stream has a task labelled {odd[0]!r}, the stream only {', '.join(map(repr, labels))}; "
            "make them match"
        )
    return [by_label[part.label] for part in train]


def _names(parts: Sequence[_Part]) -> list[str]:
    """Named by task label where the labels are unique, else by position."""
    labels = [part.label for part in parts]
    unique = None not in labels and len(set(labels)) == len(labels)
    return [f"task-{label if unique else index}" for index, label in enumerate(labels)]


def _task(name: str, train: _Part, test: _Part | None, problem: Problem, share: float, seed: int) -> Task:
    parts = [train] if test is None else [train, test]
    classes: tuple[Hashable, ...] = ()
    if problem == "regression":
        targets = [to_real_targets(part.y) for part in parts]
    else:
        labels = [class_labels(part.y, "problem='regression'") for part in parts]
        classes = tuple(sorted(set(labels[0]), key=lambda label: (str(type(label)), label)))
        if unknown := [label for label in labels[-1] if label not in classes]:
            raise DataError(
                f"task {name!r}: the test label {unknown[0]!r} has no training examples; add some, or remove it"
            )
        targets = [class_indices(part_targets, classes) for part_targets in labels]
    for part, part_targets in zip(parts, targets, strict=True):
        if len(part.x) != len(part_targets):
            raise DataError(
                f"task {name!r}: {len(part.x)} inputs but {len(part_targets)} targets; both need one row per example"
            )
    if test is not None:
        return Task(name, TaskData(train.x, targets[0]), TaskData(test.x, targets[1]), classes)
    marks = chosen_for_testing(targets[0], share, seed, name)
    return Task(
        name, TaskData(train.x[~marks], targets[0][~marks]), TaskData(train.x[marks], targets[0][marks]), classes
    )
