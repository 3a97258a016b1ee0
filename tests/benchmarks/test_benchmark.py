from dataclasses import replace

import pytest
import torch

from metareplay.benchmarks.base import Benchmark, Scenario, Task, TaskData, TaskInfo
from metareplay.errors import DataError


def _split(count: int, classes: int = 2) -> TaskData:
    return TaskData(torch.zeros(count, 3), torch.arange(count) % classes)


def _benchmark(made: list[int], num_tasks: int = 5) -> Benchmark:
    def make_task(index: int) -> Task:
        made.append(index)
        return Task(f"task-{index}", _split(4), _split(2), classes=(2 * index, 2 * index + 1))

    return Benchmark("five", "classification", Scenario.CLASS, (3,), num_tasks, make_task)


def _names(benchmark: Benchmark) -> list[str]:
    return [task.name for task in benchmark]


def test_iterating_builds_each_task_on_demand() -> None:
    made: list[int] = []
    stream = iter(_benchmark(made))
    assert made == []
    assert next(stream).name == "task-0"
    assert made == [0]
    assert [task.name for task in stream] == ["task-1", "task-2", "task-3", "task-4"]


def test_iterating_twice_gives_the_same_stream() -> None:
    benchmark = _benchmark([])
    assert _names(benchmark) == _names(benchmark)
    assert len(benchmark) == 5


@pytest.mark.parametrize(("index", "name"), [(0, "task-0"), (4, "task-4"), (-1, "task-4"), (-5, "task-0")])
def test_an_index_gives_a_task(index: int, name: str) -> None:
    assert _benchmark([])[index].name == name


@pytest.mark.parametrize("index", [5, -6])
def test_an_index_outside_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError):
        _benchmark([])[index]


@pytest.mark.parametrize(
    "chosen", [slice(2), slice(1, 4), slice(None, None, -1), slice(1, None, 2), slice(-2, None), slice(7, None)]
)
def test_a_slice_is_a_benchmark_of_the_chosen_tasks(chosen: slice) -> None:
    made: list[int] = []
    benchmark = _benchmark(made)
    part = benchmark[chosen]
    assert made == []  # slicing loads nothing
    assert isinstance(part, Benchmark)
    assert _names(part) == [f"task-{index}" for index in range(5)[chosen]]
    assert len(part) == len(_names(part))
    assert (part.name, part.problem, part.scenario, part.input_shape) == (
        "five",
        "classification",
        Scenario.CLASS,
        (3,),
    )


def test_a_slice_of_a_slice_counts_from_the_slice() -> None:
    assert _names(_benchmark([])[1:][::2][1:]) == ["task-3"]


def test_a_task_without_training_examples_is_refused() -> None:
    with pytest.raises(DataError, match="'empty' has no training examples"):
        Task("empty", _split(0), _split(2))


def test_a_task_without_test_examples_is_allowed() -> None:
    assert len(Task("untested", _split(3), _split(0), classes=("a", "b")).test.x) == 0


@pytest.mark.parametrize("part", ["train", "test"])
def test_inputs_and_targets_must_have_the_same_length(part: str) -> None:
    splits = {"train": _split(3), "test": _split(3)} | {part: TaskData(torch.zeros(3, 1), torch.zeros(2))}
    with pytest.raises(DataError, match=f"3 {part} inputs but 2 targets"):
        Task("uneven", splits["train"], splits["test"])


@pytest.mark.parametrize("wrong", [-1, 2])
@pytest.mark.parametrize("part", ["train", "test"])
def test_targets_must_be_indices_of_classes(part: str, wrong: int) -> None:
    splits = {"train": _split(2), "test": _split(2)} | {part: TaskData(torch.zeros(2, 1), torch.tensor([0, wrong]))}
    with pytest.raises(DataError, match=f"{part} targets must be class indices from 0 to 1"):
        Task("outside", splits["train"], splits["test"], classes=(7, 9))


def test_what_a_benchmark_says_about_its_tasks_needs_no_data() -> None:
    made: list[int] = []
    plain = _benchmark(made)
    assert [outline.name for outline in plain.task_infos()] == _names(plain)
    made.clear()
    told = replace(
        plain, describe=lambda index: TaskInfo(f"told-{index}", (index,)), make_test=lambda index: _split(index + 1)
    )
    assert told.task_infos()[3] == TaskInfo("told-3", (3,))
    assert len(told.test(4).x) == 5
    part = told[1:4:2]
    assert [outline.name for outline in part.task_infos()] == ["told-1", "told-3"]
    assert len(part.test(1).x) == 4
    assert made == []
    assert len(plain.test(2).x) == 2
    assert made == [2]


def test_a_scenario_is_its_name() -> None:
    assert f"{Scenario.CLASS}" == "class"
    assert Scenario("domain") is Scenario.DOMAIN
