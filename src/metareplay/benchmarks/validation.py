"""A stream for choosing settings: held-out training examples in place of the test set, or only the first tasks."""

from dataclasses import replace

from metareplay.benchmarks.assemble import chosen_for_testing
from metareplay.benchmarks.base import Benchmark, Task, TaskData
from metareplay.benchmarks.settings import TaskSettings
from metareplay.errors import ConfigError, DataError


def with_protocol(benchmark: Benchmark, settings: TaskSettings, data_seed: int) -> Benchmark:
    """The benchmark as ``tasks.first`` and ``tasks.validation`` specify it; by default the benchmark itself."""
    count = refuse_missing_tasks(benchmark.name, len(benchmark), settings)
    if count < len(benchmark):
        benchmark = replace(benchmark[:count], beginning_of=len(benchmark))
    if settings.validation == 0:
        return benchmark
    share = settings.validation

    def task(index: int) -> Task:
        whole = benchmark[index]
        held_out = chosen_for_testing(whole.train.y, share, data_seed, "validation", index)  # (N,), bool
        if not bool(held_out.any()) or bool(held_out.all()):
            raise DataError(
                f"task {whole.name!r} has too few training examples ({len(held_out)}) to hold any out; "
                "add some, or hold out another share (tasks.validation; --held-out of metareplay tune)"
            )
        train, test = (
            TaskData(whole.train.x[rows], whole.train.y[rows])  # (N, ...) -> (n, ...)
            for rows in (~held_out, held_out)
        )
        return Task(whole.name, train, test, whole.classes)

    return replace(benchmark, make_task=task, make_test=None)


def refuse_missing_tasks(name: str, count: int, settings: TaskSettings) -> int:
    """The number of tasks under the settings; more than there are cannot be asked for."""
    if settings.first is not None and settings.first > count:
        raise ConfigError(
            f"tasks.first={settings.first} (--first-tasks of metareplay tune), but {name} has {count} tasks; choose at "
            f"most {count}"
        )
    return count if settings.first is None else settings.first
