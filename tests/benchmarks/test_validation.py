"""Held-out training examples in place of the test set, which is then never used; the first tasks alone."""

from dataclasses import replace

import pytest
import torch

from metareplay.benchmarks.base import Benchmark, TaskData
from metareplay.benchmarks.registry import build_benchmark
from metareplay.benchmarks.settings import TaskSettings
from metareplay.benchmarks.validation import with_protocol
from metareplay.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def digits() -> Benchmark:
    return build_benchmark("split-digits")


def test_by_default_it_is_the_benchmark_itself(digits: Benchmark) -> None:
    assert with_protocol(digits, TaskSettings(), 11) is digits


def test_held_out_examples_are_a_share_of_every_class_and_the_others_are_trained(digits: Benchmark) -> None:
    task, whole = with_protocol(digits, TaskSettings(validation=0.25), 11)[1], digits[1]
    rows = {tuple(row) for row in whole.train.x.flatten(1).tolist()}
    parts = [{tuple(row) for row in data.x.flatten(1).tolist()} for data in (task.train, task.test)]
    assert parts[0] | parts[1] == rows
    assert not parts[0] & parts[1]
    for label in (0, 1):
        assert (task.test.y == label).sum() == round(0.25 * int((whole.train.y == label).sum()))


def test_the_test_set_is_not_looked_at(digits: Benchmark) -> None:
    def poisoned(index: int) -> TaskData:
        raise AssertionError("the test set was read")

    def ruined(index: int) -> object:
        task = digits[index]
        return replace(task, test=TaskData(task.test.x * torch.nan, task.test.y * 0))

    other = replace(digits, make_test=poisoned, make_task=ruined)
    settings = TaskSettings(validation=0.2)
    for one, two in zip(with_protocol(digits, settings, 11), with_protocol(other, settings, 11), strict=True):
        assert all(torch.equal(a, b) for a, b in zip((*one.train, *one.test), (*two.train, *two.test), strict=True))
    assert torch.equal(with_protocol(other, settings, 11).test(2).x, with_protocol(digits, settings, 11)[2].test.x)


def test_the_first_tasks_alone(digits: Benchmark) -> None:
    assert [task.name for task in with_protocol(digits, TaskSettings(first=2), 11)] == [
        task.name for task in digits[:2]
    ]
    assert with_protocol(digits, TaskSettings(first=2), 11).expected_tasks == digits.expected_tasks == 5
    assert digits[:2].expected_tasks == 2
    with pytest.raises(ConfigError, match=r"tasks.first=6 \(--first-tasks .*\), but .* has 5 tasks"):
        build_benchmark("split-digits", tasks=TaskSettings(first=6))


def test_a_task_that_is_too_small_is_refused(digits: Benchmark) -> None:
    small = digits[0]
    first = torch.tensor([int((small.train.y == label).nonzero()[0]) for label in (0, 1)])
    few = replace(small, train=TaskData(small.train.x[first], small.train.y[first]))
    tiny = replace(digits, num_tasks=1, make_task=lambda index: few)
    with pytest.raises(DataError, match="too few training examples"):
        with_protocol(tiny, TaskSettings(validation=0.2), 11)[0]
