"""A user's own data as a benchmark: what is predicted, what the tasks are, and which examples are for testing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from metareplay.benchmarks.assemble import assemble, chosen_for_testing
from metareplay.benchmarks.base import Benchmark, Problem, Scenario, Task, TaskData
from metareplay.data.base import Examples
from metareplay.data.periods import period_notes, periods_of
from metareplay.data.reading import read_examples
from metareplay.data.settings import BY_CLASSES, DataSettings
from metareplay.data.time_order import in_time_order
from metareplay.errors import ConfigError, DataError

MOST_CLASSES = 100
FEW_CLASSES, FEWEST_ROWS = 20, 5
"""More different integers than this, with fewer rows each, may be measurements such as ages."""
"""Integers with more distinct values than this may be real targets."""


def own_benchmark(settings: DataSettings, *, data_seed: int, scenario: Scenario | None = None) -> Benchmark:
    """The tasks of the data that the settings specify; data that does not match a stored fingerprint is refused."""
    examples = read_examples(settings)
    benchmark = benchmark_of(examples, settings, data_name(settings), data_seed, scenario)
    if settings.fingerprint not in (None, benchmark.fingerprint) and settings.task_order is None and examples.tasks:
        as_they_appear = settings.model_copy(update={"task_order": examples.tasks})  # as earlier versions did
        earlier = benchmark_of(examples, as_they_appear, data_name(settings), data_seed, scenario)
        benchmark = earlier if earlier.fingerprint == settings.fingerprint else benchmark
    refuse_other(benchmark, settings)
    return benchmark


def refuse_other(benchmark: Benchmark, settings: DataSettings) -> None:
    """Refuse data that does not match the fingerprint in the settings."""
    if settings.fingerprint is not None and settings.fingerprint != benchmark.fingerprint:
        raise DataError(
            f"the data in {settings.path} changed since the run started (fingerprint {benchmark.fingerprint}, "
            f"was {settings.fingerprint}), or is now read differently; restore it, or start a new run in another --out"
        )


def data_name(settings: DataSettings) -> str:
    """What results call the data: the file or folder name without its extension."""
    path = str(settings.path).removeprefix("hf:").rstrip("/")
    return f"custom:{Path(path).name.partition('.')[0] or 'data'}"


def benchmark_of(
    examples: Examples, settings: DataSettings, name: str, data_seed: int, scenario: Scenario | None = None
) -> Benchmark:
    """Examples as tasks."""
    problem, why = chosen_problem(examples, settings)
    examples = as_targets(examples, problem)
    groups = groups_of(examples, settings, problem)
    tasks = [_task(examples, title, rows, settings, problem, data_seed) for title, rows in groups]
    notes = [f"{problem}: {why}", *examples.notes, *order_notes(examples, settings, [title for title, _ in groups])]
    notes += period_notes([periods_of(examples.x[rows], examples.inputs) for _, rows in groups])
    return assemble(name, problem, scenario, tasks, inputs=examples.inputs, notes=notes)


def chosen_problem(examples: Examples, settings: DataSettings) -> tuple[Problem, str]:
    """Classification or regression, and why."""
    if settings.problem is not None:
        return settings.problem, "as requested"
    if not examples.labels:
        return "regression", "the labels are non-integer numbers"
    integers = all(isinstance(label, int) for label in examples.labels)
    count, rows = len(examples.labels), len(examples.y)
    if integers and (count > MOST_CLASSES or (count > FEW_CLASSES and FEWEST_ROWS * count > rows)):
        raise ConfigError(
            f"the labels are {count} different integers in {rows} rows, which may be classes or real targets; "
            "say which with --problem classification or --problem regression"
        )
    if count > FEW_CLASSES and 1.5 * count > rows:
        raise ConfigError(
            f"the labels are {count} different names in {rows} rows, too many to be learned as classes; "
            "name another column with --label, or insist with --problem classification"
        )
    return "classification", f"the labels are {len(examples.labels)} {'integers' if integers else 'names'}"


def as_targets(examples: Examples, problem: Problem) -> Examples:
    """Labels turned into real targets or the reverse, if the problem requires it."""
    if problem == "regression" and examples.labels:
        if not all(isinstance(label, int | float) for label in examples.labels):
            raise DataError(
                f"{examples.where(0)}: the label {examples.labels[0]!r} is not a number; regression needs numbers"
            )
        values = torch.tensor([float(label) for label in examples.labels], dtype=torch.float64)
        return replace(examples, y=values[examples.y].unsqueeze(1), labels=())  # (N,) -> (N, 1)
    if problem == "classification" and not examples.labels:
        if examples.y.shape[1] != 1:
            raise DataError(
                f"the labels have {examples.y.shape[1]} columns; classification needs one label per example"
            )
        values, index = examples.y[:, 0].unique(return_inverse=True)
        return replace(examples, y=index, labels=tuple(values.tolist()))
    return examples


def groups_of(examples: Examples, settings: DataSettings, problem: Problem) -> list[tuple[str, Tensor]]:
    """The name and examples (row indices) of each task, in learning order."""
    if settings.tasks_by is not None and settings.tasks_by.startswith(BY_CLASSES):
        if problem == "regression":
            raise ConfigError(
                "--tasks-by classes:k needs classes; name the column that says which task a row belongs to"
            )
        return _by_classes(examples, settings)
    if examples.task is None:
        how = (
            "classes:2 (two classes per task, and so on)"
            if problem == "classification"
            else "the column that names the task"
        )
        raise ConfigError(f"the data does not say which example belongs to which task; add --tasks-by {how}")
    in_time = in_time_order(examples.tasks, settings.tasks_by)
    order = _ordered(examples.tasks if in_time is None else in_time, settings.task_order, "task")
    return [(name, (examples.task == examples.tasks.index(name)).nonzero().squeeze(1)) for name in order]


def order_notes(
    examples: Examples, settings: DataSettings, order: Sequence[str], option: str = "--task-order"
) -> list[str]:
    """Say in which order tasks are learned that do not appear in that of time; ``option`` changes it."""
    if settings.task_order is not None or set(order) != set(examples.tasks) or len(order) < 2:
        return []
    shown = f"{', '.join(order[:5])}{', ...' if len(order) > 5 else ''}"
    if list(order) != list(examples.tasks):
        return [f"tasks are learned in chronological order ({shown}), not as they appear; {option} overrides this"]
    if in_time_order(examples.tasks, settings.tasks_by) is None:
        return [f"tasks are learned in the order in which they appear ({shown}); {option} overrides this"]
    return []


def _by_classes(examples: Examples, settings: DataSettings) -> list[tuple[str, Tensor]]:
    names = [str(label) for label in examples.labels]
    order = _ordered(names, settings.task_order, "class")
    groups, start = [], 0
    for size in _sizes(str(settings.tasks_by), len(order)):
        chosen = order[start : start + size]
        start += size
        indices = torch.tensor([names.index(name) for name in chosen])
        title = "-".join(chosen) if len(chosen) <= 10 else f"{chosen[0]}-to-{chosen[-1]}"
        groups.append((f"classes-{title}", torch.isin(examples.y, indices).nonzero().squeeze(1)))
    return groups


def _sizes(text: str, classes: int) -> list[int]:
    """The number of classes in each task."""
    try:
        sizes = [int(part) for part in text.removeprefix(BY_CLASSES).split(",")]
    except ValueError as error:
        raise ConfigError(
            f"--tasks-by {text}: write the number of classes per task, e.g. classes:2, or for each, e.g. classes:2,3"
        ) from error
    if min(sizes) < 1:
        raise ConfigError(f"--tasks-by {text}: a task needs at least one class")
    if len(sizes) == 1 and classes % sizes[0] == 0 and classes:
        return sizes * (classes // sizes[0])
    if len(sizes) == 1 or sum(sizes) != classes:
        if classes < 2:
            raise ConfigError(
                f"--tasks-by {text}: the data has a single class; there is nothing to distinguish: add another class"
            )
        example = f"classes:2,{classes - 2}" if classes > 3 else f"classes:{classes}"
        raise ConfigError(
            f"--tasks-by {text} does not fit {classes} classes; write sizes that add up to {classes}, e.g. {example}"
        )
    return sizes


def _ordered(found: Sequence[str], wanted: Sequence[str] | None, what: str) -> list[str]:
    if wanted is None:
        return list(found)
    if sorted(wanted) != sorted(found):
        odd = next((name for name in wanted if name not in found), None) or next(
            (name for name in found if name not in wanted), next(iter(wanted), "")
        )
        raise ConfigError(
            f"--task-order must name every {what} of the data once ({', '.join(found[:20])}); check {odd!r}"
        )
    return list(wanted)


def _task(
    examples: Examples, name: str, rows: Tensor, settings: DataSettings, problem: Problem, data_seed: int
) -> Task:
    x, y = examples.x[rows], examples.y[rows]
    has_test_set = examples.test is not None
    test = (
        examples.test[rows]
        if examples.test is not None
        else chosen_for_testing(y, settings.test_share, data_seed, name)
    )
    if bool(test.all()) or not bool(test.any()):
        part, advice = (
            ("training", "add some") if bool(test.all()) else ("test", "add some, or have them chosen by --test-share")
        )
        advice = advice if has_test_set else "it needs at least two examples of each class"
        raise DataError(f"task {name!r} has no {part} examples; {advice}")
    if problem == "regression":
        return Task(name, TaskData(x[~test], y[~test].float()), TaskData(x[test], y[test].float()))
    classes = y[~test].unique()  # sorted
    unknown = ~torch.isin(y, classes)
    if bool(unknown.any()):
        row = int(rows[int(unknown.nonzero()[0])])
        raise DataError(
            f"{examples.where(row)}: the test example's class {examples.labels[int(examples.y[row])]!r} "
            f"has no training examples in task {name!r}; add some, or remove it"
        )
    targets = torch.searchsorted(classes, y)  # indices into the task's classes
    labels = tuple(examples.labels[index] for index in classes.tolist())
    return Task(name, TaskData(x[~test], targets[~test]), TaskData(x[test], targets[test]), labels)
