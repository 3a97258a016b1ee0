"""Outputs that the squared change leaves out: both forms agree with the formula, and what is left out is free."""

from collections.abc import Sequence
from copy import deepcopy

import pytest
import torch
from torch import Generator, Tensor

from metareplay.task_maps.base import Start, TaskMap
from metareplay.task_maps.chunked import ChunkedHypernetwork
from metareplay.task_maps.ensemble import EnsembleMap
from metareplay.task_maps.hypernetwork import Hypernetwork, PlainHypernetwork
from metareplay.task_maps.left_out import LeftOut
from metareplay.task_maps.replay_distance import SquaredChange

SIZE, TASKS = 23, 4
KINDS = ("plain", "linear", "chunked", "chunked-per-task", "grown", "grown-plain")
PATTERNS = {
    "heads in the middle and at the end": {0: (8, 9, 20, 21), 1: (6, 7, 18, 19), 2: (6, 7, 8, 9, 18, 19, 20, 21)},
    "the whole of the last chunk": {0: (20, 21, 22), 1: (20, 21, 22), 2: (20, 21, 22)},
    "all of them": dict.fromkeys(range(3), tuple(range(SIZE))),
    "some of every chunk": {0: tuple(range(0, SIZE, 3)), 1: tuple(range(1, SIZE, 3)), 2: ()},
    "nothing": dict.fromkeys(range(3), ()),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_pattern = pytest.mark.parametrize("pattern", PATTERNS)


def made(kind: str, rng: Generator, entries: int = TASKS) -> Hypernetwork:
    hypernetwork: Hypernetwork
    size = SIZE - 3 if kind.startswith("grown") else SIZE
    if kind in ("plain", "linear", "grown-plain"):
        hidden = () if kind == "linear" else (5,)
        hypernetwork = PlainHypernetwork(size, hidden=hidden, task_embedding_size=3, generator=rng)
    else:
        hypernetwork = ChunkedHypernetwork(
            size,
            hidden=(6, 5),
            chunk_size=4,
            task_embedding_size=3,
            chunk_embedding_size=2,
            chunk_embeddings_per_task=kind == "chunked-per-task",
            generator=rng,
        )
    for _ in range(entries):
        hypernetwork.add_task(Start(torch.zeros(size)), generator=rng)
    if kind.startswith("grown"):  # new elements at positions 2, 10 and 17 of theta, at the end of the outputs
        old = torch.tensor([place for place in range(SIZE) if place not in (2, 10, 17)])
        hypernetwork.grow(old, Start(torch.zeros(SIZE)), generator=rng)
    return hypernetwork.double()


def left_out_of(pattern: str, size: int = SIZE) -> LeftOut:
    elements = torch.zeros(3, size, dtype=torch.bool)
    for task, places in PATTERNS[pattern].items():
        elements[task, list(places)] = True
    return LeftOut([0, 1, 2], elements)


def shaken(old: TaskMap, rng: Generator, amount: float = 0.3) -> TaskMap:
    current = deepcopy(old)
    for parameter in current.parameters():
        parameter.data += amount * torch.randn(parameter.shape, generator=rng, dtype=parameter.dtype)
    return current


def gradients(value: Tensor, of: TaskMap) -> tuple[Tensor, ...]:
    return torch.autograd.grad(value, list(of.parameters()), allow_unused=True, materialize_grads=True)


def by_hand(current: TaskMap, old: TaskMap, left_out: LeftOut, tasks: Sequence[int], weights: Tensor | None) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for place, task in enumerate(tasks):
        kept = ~left_out.elements[task]
        squares = (current.theta(task) - old.theta(task).detach())[kept].square().sum()
        total = total + (1.0 if weights is None else weights[place]) * squares
    return total


@every_kind
@every_pattern
@pytest.mark.parametrize("weighted", [False, True])
def test_both_forms_equal_the_loop_over_tasks(kind: str, pattern: str, weighted: bool, rng: Generator) -> None:
    old, left_out = made(kind, rng), left_out_of(pattern)
    current = shaken(old, rng)
    for tasks in ([0], [2, 0], [0, 1, 2]):
        weights = torch.tensor([0.3, 2.0, 0.0], dtype=torch.float64)[: len(tasks)] if weighted else None
        expected = by_hand(current, old, left_out, tasks, weights)
        slopes = gradients(expected, current) if expected.requires_grad else None
        for stored in ((), [0, 1, 2]):
            change = SquaredChange(old, stored, left_out)
            for small in (True, False):
                value = change(current, tasks, weights=weights, small_matrices=small)
                torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
                for actual, wanted in zip(gradients(value, current), slopes or (), strict=slopes is not None):
                    torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-9)


@every_kind
@every_pattern
@pytest.mark.parametrize("small", [True, False])
def test_value_and_gradient_are_exactly_zero_at_the_checkpoint(
    kind: str, pattern: str, small: bool, rng: Generator
) -> None:
    old = made(kind, rng).float()  # in single precision, as in training
    current = deepcopy(old)
    value = SquaredChange(old, [0, 1, 2], left_out_of(pattern))(current, [0, 1, 2], small_matrices=small)
    assert float(value.detach()) == 0
    assert not value.requires_grad or not any(slope.any() for slope in gradients(value, current))


@pytest.mark.parametrize("kind", ["plain", "grown-plain"])
@pytest.mark.parametrize("small", [True, False])
def test_no_gradient_reaches_what_is_left_out(kind: str, small: bool, rng: Generator) -> None:
    """A plain hypernetwork's outputs have rows of their own, which are free where no task keeps them."""
    old, places = made(kind, rng), [2, 8, 21]
    left_out = LeftOut([0, 1, 2], torch.zeros(3, SIZE, dtype=torch.bool))
    left_out.elements[:, places] = True
    current = shaken(old, rng)
    assert isinstance(current, Hypernetwork)
    SquaredChange(old, (), left_out)(current, [0, 1, 2], small_matrices=small).backward()
    free = torch.tensor(places) if old.slots is None else old.slots[places]
    slope = current.output_layer.weight.grad
    assert slope is not None
    assert not slope[free].any()
    assert slope.any(1).sum() == SIZE - len(places)


@every_pattern
def test_tiny_changes_are_not_lost_beside_large_ones_that_are_left_out(pattern: str, rng: Generator) -> None:
    old = made("plain", rng)
    current = shaken(old, rng, 1e-5)
    left_out = left_out_of(pattern)
    assert isinstance(current, Hypernetwork)
    free = left_out.elements.all(0)
    current.output_layer.bias.data[free] += 100.0  # what no task keeps has moved far
    exact = SquaredChange(old, (), left_out)(current, [0, 1, 2], small_matrices=False)
    value = SquaredChange(old.float(), (), left_out)(current.float(), [0, 1, 2], small_matrices=True)
    torch.testing.assert_close(value.double(), exact, rtol=0.1, atol=0)


@pytest.mark.parametrize("kind", ["plain", "chunked", "chunked-per-task"])
def test_the_members_of_an_ensemble_leave_out_their_own(kind: str, rng: Generator) -> None:
    old = EnsembleMap(made(kind, rng, 0), 2)
    for _ in range(TASKS):
        old.add_task(Start(torch.zeros(2 * SIZE)), generator=rng)
    elements = torch.rand(3, 2 * SIZE, generator=rng) < 0.3
    current = shaken(old.double(), rng)
    tasks = [2, 0]
    changes = (current.thetas(tasks) - old.thetas(tasks)).masked_fill(elements[tasks], 0)
    expected = changes.square().sum() / 2  # the mean over members
    for small in (True, False):
        actual = SquaredChange(old, (), LeftOut([0, 1, 2], elements))(current, tasks, small_matrices=small)
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
