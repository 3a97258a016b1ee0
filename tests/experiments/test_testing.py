"""Test data of the tasks so far: loaded on demand, and at most ``limit`` inputs."""

import pytest
import torch

from metareplay.benchmarks.base import Benchmark, Scenario, Task, TaskData
from metareplay.experiments.testing import TaskTests


def _benchmark(made: list[int]) -> Benchmark:
    def make_test(index: int) -> TaskData:
        made.append(index)
        return TaskData(torch.arange(10.0).unsqueeze(1) + 100 * index, torch.arange(10))

    def make_task(index: int) -> Task:
        raise AssertionError("a test set needs no training data")

    return Benchmark("mine", "classification", Scenario.DOMAIN, (1,), 3, make_task, make_test)


def test_only_what_is_asked_for_is_made() -> None:
    made: list[int] = []
    tests = TaskTests(_benchmark(made), None, 0)
    assert len(tests) == 0
    tests.known = 2
    assert len(tests) == 2
    assert made == []
    assert tests[-1].x[0] == 100
    assert made == [1]
    with pytest.raises(IndexError):
        tests[2]
    assert [int(test.x[0]) for test in tests] == [0, 100]
    assert len(tests[:1]) == 1


def test_a_limit_takes_the_same_random_rows_each_time() -> None:
    tests, other = TaskTests(_benchmark([]), 4, 0), TaskTests(_benchmark([]), 4, 1)
    tests.known = other.known = 3
    x, y = tests[1]
    assert x.squeeze(1).tolist() == [100 + label for label in y.tolist()]
    assert len(y) == 4
    assert y.tolist() == sorted(y.tolist())
    assert torch.equal(y, tests[1].y)
    assert any(not torch.equal(tests[task].y, other[task].y) for task in range(3))
    assert any(not torch.equal(tests[task].y, y) for task in (0, 2))


@pytest.mark.parametrize("limit", [10, 11])
def test_a_limit_beyond_the_data_takes_all(limit: int) -> None:
    tests = TaskTests(_benchmark([]), limit, 0)
    tests.known = 1
    assert len(tests[0].x) == 10
