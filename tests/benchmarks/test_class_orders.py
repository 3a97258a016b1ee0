"""Orders of classes by how alike those of different tasks are."""

import pytest
import torch

from metareplay.benchmarks.class_orders import by_difficulty, class_means
from metareplay.benchmarks.registry import build_benchmark
from metareplay.benchmarks.settings import TaskSettings

PAIRS = torch.tensor([[0.0], [0.1], [10.0], [10.1], [20.0], [20.1]])
"""Six classes of which two each are alike."""


def tasks_of(order: torch.Tensor) -> list[set[int]]:
    return [set(pair.tolist()) for pair in order.view(-1, 2)]


def test_an_order_is_hard_where_classes_of_different_tasks_are_alike() -> None:
    orders = by_difficulty(PAIRS, 2, 0)
    assert sorted(map(sorted, tasks_of(orders["easiest"]))) == [[0, 1], [2, 3], [4, 5]]
    hardest = [abs(float(PAIRS[a] - PAIRS[b])) for a, b in map(sorted, tasks_of(orders["hardest"]))]
    assert min(hardest) > 1  # no pair shares a task
    assert len({tuple(order.tolist()) for order in orders.values()}) == 3


def test_the_data_seed_draws_the_orders() -> None:
    first, again, other = (by_difficulty(PAIRS, 2, seed)["median"].tolist() for seed in (0, 0, 1))
    assert first == again != other


def test_means_of_classes() -> None:
    x = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]]])
    assert class_means(x, torch.tensor([7, 2, 7])).tolist() == [[3.0, 4.0], [3.0, 4.0]]


@pytest.mark.parametrize("order", ["hardest", "median", "easiest"])
def test_digits_in_such_an_order(order: str) -> None:
    benchmark = build_benchmark("split-digits", tasks=TaskSettings(class_order=order))  # type: ignore[arg-type]
    classes = [label for task in benchmark.task_infos() for label in task.classes]
    assert sorted(map(int, map(str, classes))) == list(range(10))
