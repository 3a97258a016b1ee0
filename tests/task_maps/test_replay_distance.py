"""The squared change of a hypernetwork's outputs: two forms, one value, and the same gradients."""

from copy import deepcopy
from typing import TypeVar

import pytest
import torch
from torch import Generator, Tensor

from metareplay.task_maps.base import Start, TaskMap
from metareplay.task_maps.chunked import ChunkedHypernetwork
from metareplay.task_maps.ensemble import EnsembleMap
from metareplay.task_maps.hypernetwork import Hypernetwork, PlainHypernetwork
from metareplay.task_maps.replay_distance import SquaredChange

Map = TypeVar("Map", bound=TaskMap)
KINDS = ("plain", "linear", "chunked", "chunked-per-task", "grown")


def _hypernetwork(kind: str, size: int, tasks: int, activation: str, rng: Generator) -> Hypernetwork:
    made: Hypernetwork
    if kind in ("plain", "linear"):
        made = PlainHypernetwork(
            size, hidden=(5,) if kind == "plain" else (), activation=activation, task_embedding_size=3, generator=rng
        )
    else:
        made = ChunkedHypernetwork(
            size,
            hidden=(6, 5),
            chunk_size=4,
            activation=activation,
            task_embedding_size=3,
            chunk_embedding_size=2,
            chunk_embeddings_per_task=kind == "chunked-per-task",
            generator=rng,
        )
    for _ in range(tasks + 1):  # the task that is learned comes last
        made.add_task(Start(torch.zeros(size)), generator=rng)
    if kind == "grown":
        made.grow(torch.arange(size) + 3, Start(torch.zeros(size + 3)), generator=rng)
    return made.double()


def _changed(old: Map, rng: Generator, amount: float = 0.3) -> Map:
    current = deepcopy(old)
    for parameter in current.parameters():
        parameter.data += amount * torch.randn(parameter.shape, generator=rng, dtype=parameter.dtype)
    return current


def _value_and_gradients(
    current: Hypernetwork, old: Hypernetwork, tasks: list[int], small: bool | None
) -> tuple[Tensor, list[Tensor]]:
    value = SquaredChange(old)(current, tasks, small_matrices=small)
    gradients = torch.autograd.grad(value, list(current.parameters()), allow_unused=True, materialize_grads=True)
    return value.detach(), list(gradients)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [12, 14, 3])
def test_both_forms_equal_the_loop_over_tasks(kind: str, size: int, rng: Generator) -> None:
    for tasks, activation in (([0], "relu"), ([0, 1, 2], "sigmoid"), ([2, 0], "relu")):
        old = _hypernetwork(kind, size, 3, activation, rng)
        current = _changed(old, rng)
        by_hand = torch.stack([(current.theta(task) - old.theta(task).detach()).square().sum() for task in tasks]).sum()
        expected = torch.autograd.grad(by_hand, list(current.parameters()), allow_unused=True, materialize_grads=True)
        for small in (True, False, None):
            value, gradients = _value_and_gradients(current, old, tasks, small)
            torch.testing.assert_close(value, by_hand.detach(), rtol=1e-10, atol=1e-10)
            for gradient, wanted in zip(gradients, expected, strict=True):
                torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [12, 14, 3])
def test_both_forms_weigh_the_tasks(kind: str, size: int, rng: Generator) -> None:
    old, tasks = _hypernetwork(kind, size, 3, "relu", rng), [2, 0, 1]
    current, weights = _changed(old, rng), torch.tensor([0.25, 3.0, 0.0], dtype=torch.float64)
    each = [(current.theta(task) - old.theta(task).detach()).square().sum() for task in tasks]
    by_hand = sum(weight * term for weight, term in zip(weights.tolist(), each, strict=True))
    assert isinstance(by_hand, Tensor)
    expected = torch.autograd.grad(by_hand, list(current.parameters()), allow_unused=True, materialize_grads=True)
    for small, stored in ((True, ()), (False, ()), (True, range(3)), (True, tasks)):
        value = SquaredChange(old, stored)(current, tasks, weights=weights, small_matrices=small)
        torch.testing.assert_close(value, by_hand, rtol=1e-10, atol=1e-10)
        gradients = torch.autograd.grad(value, list(current.parameters()), allow_unused=True, materialize_grads=True)
        for gradient, own in zip(gradients, expected, strict=True):
            torch.testing.assert_close(gradient, own, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("size", [12, 14])
def test_value_and_gradient_are_exactly_zero_at_the_checkpoint(
    kind: str, small: bool, size: int, rng: Generator
) -> None:
    old = _hypernetwork(kind, size, 3, "relu", rng).float()  # in single precision, as in training
    value, gradients = _value_and_gradients(deepcopy(old), old, [0, 1, 2], small)
    assert float(value) == 0
    assert not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("kind", KINDS)
def test_tiny_changes_are_not_lost_to_cancellation(kind: str, rng: Generator) -> None:
    old = _hypernetwork(kind, 14, 3, "relu", rng)
    current = _changed(old, rng, amount=1e-5)
    exact = SquaredChange(old)(current, [0, 1], small_matrices=False)
    value = SquaredChange(old.float())(current.float(), [0, 1], small_matrices=True)
    torch.testing.assert_close(value.double(), exact, rtol=0.1, atol=0)


@pytest.mark.parametrize("small", [True, False])
def test_gradients_reach_old_embeddings_and_never_the_checkpoint(small: bool, rng: Generator) -> None:
    old = _hypernetwork("chunked-per-task", 14, 2, "sigmoid", rng)
    current = _changed(old, rng)
    SquaredChange(old)(current, [1], small_matrices=small).backward()
    assert all(parameter.grad is None for parameter in old.parameters())
    embeddings = [*current.task_embeddings, *getattr(current, "chunk_embeddings", [])]
    touched = [embedding.grad is not None and bool(embedding.grad.any()) for embedding in embeddings]
    assert touched == [False, True, False] * 2


def test_the_cheaper_form_is_chosen(rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []

    def spy(self: SquaredChange, current: Hypernetwork, tasks: list[int], weights: Tensor | None) -> Tensor:
        chosen.append(len(tasks))
        return torch.zeros(())

    monkeypatch.setattr("metareplay.task_maps.replay_distance.SquaredChange._small_matrix_form", spy)
    old = _hypernetwork("chunked", 12, 30, "relu", rng)  # three rows per task, six columns
    for count in (1, 2, 3, 30):
        SquaredChange(old)(old, list(range(count)))
    assert chosen == [3, 30]  # 3 rows * tasks against 4 columns: from nine rows on


@pytest.mark.parametrize("kind", ["plain", "linear", "chunked", "chunked-per-task"])
@pytest.mark.parametrize("weighted", [False, True])
def test_of_an_ensemble_it_is_the_mean_over_members_in_both_forms(kind: str, weighted: bool, rng: Generator) -> None:
    old = EnsembleMap(_hypernetwork(kind, 14, -1, "relu", rng), 3)
    for _ in range(4):
        old.add_task(Start(torch.zeros(3 * 14)), generator=rng)
    current = _changed(old.double(), rng)
    tasks, weights = [2, 0], torch.tensor([0.3, 2.0], dtype=torch.float64) if weighted else None
    by_task = (current.thetas(tasks) - old.thetas(tasks)).square().view(2, 3, 14).sum(-1).mean(-1)  # (T, M, P) -> (T,)
    expected = (by_task if weights is None else weights * by_task).sum()
    for small in (True, False, None):
        for targets in (None, old.thetas(tasks).detach()):
            actual = SquaredChange(old)(current, tasks, targets=targets, weights=weights, small_matrices=small)
            torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
