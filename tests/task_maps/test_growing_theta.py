"""Theta grows with the network's outputs; old elements keep their values at their new positions."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Generator, Tensor

from metareplay.task_maps.base import Start, TaskMap
from metareplay.task_maps.chunked import ChunkedHypernetwork
from metareplay.task_maps.direct import PerTaskParameters, SharedParameters
from metareplay.task_maps.hypernetwork import Hypernetwork, PerTaskHypernetworks, PlainHypernetwork


def _chunked(size: int, rng: Generator, *, chunk_size: int = 4, per_task: bool = False) -> Hypernetwork:
    return ChunkedHypernetwork(
        size,
        hidden=(6,),
        chunk_size=chunk_size,
        task_embedding_size=3,
        chunk_embedding_size=2,
        chunk_embeddings_per_task=per_task,
        generator=rng,
    )


def _plain(size: int, rng: Generator) -> Hypernetwork:
    return PlainHypernetwork(size, hidden=(6,), task_embedding_size=3, generator=rng)


TASK_MAPS: dict[str, Callable[[int, Generator], TaskMap]] = {
    "plain": _plain,
    "chunked": _chunked,
    "chunked-no-remainder": lambda size, rng: _chunked(size, rng, chunk_size=5),
    "one-chunk": lambda size, rng: _chunked(size, rng, chunk_size=size),
    "chunked-per-task": lambda size, rng: _chunked(size, rng, per_task=True),
    "separate-plain": lambda size, rng: PerTaskHypernetworks(size, _plain),
    "separate-chunked": lambda size, rng: PerTaskHypernetworks(size, _chunked),
    "per-task": lambda size, rng: PerTaskParameters(size),
    "shared": lambda size, rng: SharedParameters(size),
}
FIRST = torch.tensor([3, 4, 6, 7, 8, 0, 10, 11, 12, 13])
"""Positions of the first ten elements among sixteen: neither in order nor at an end."""
SECOND = torch.tensor([*range(10), *range(11, 17)])
"""Positions of those sixteen among nineteen."""


@pytest.fixture(params=TASK_MAPS)
def task_map(request: pytest.FixtureRequest, rng: Generator) -> TaskMap:
    made = TASK_MAPS[request.param](10, rng)
    for value in (1.0, 2.0):
        made.add_task(Start(value + torch.rand(10, generator=rng)), generator=rng)
    return made


@pytest.mark.parametrize("variances", [False, True])
def test_old_elements_keep_their_values(task_map: TaskMap, variances: bool, rng: Generator) -> None:
    before = task_map.thetas([0, 1]).detach().clone()
    task_map.grow(FIRST, _start(16, variances), generator=rng)
    grown = task_map.thetas([0, 1]).detach().clone()
    assert grown.shape == (2, 16)
    assert task_map.num_outputs == 16
    torch.testing.assert_close(grown[:, FIRST], before, rtol=1e-5, atol=1e-6)
    task_map.add_task(_start(16, variances), generator=rng)
    task_map.grow(SECOND, _start(19, variances), generator=rng)  # and once more
    torch.testing.assert_close(task_map.thetas([0, 1])[:, SECOND], grown, rtol=1e-5, atol=1e-6)
    assert task_map.thetas([0, 1, 2]).shape == (3, 19)


def _start(size: int, variances: bool) -> Start:
    return Start(torch.linspace(-1, 1, size), torch.full((size,), 0.04) if variances else None)


def test_what_is_new_is_trained_too(task_map: TaskMap, rng: Generator) -> None:
    task_map.grow(FIRST, _start(16, False), generator=rng)
    task_map.add_task(_start(16, False), generator=rng)
    parameters = task_map.trained_parameters(2)
    known = {id(parameter) for parameter in task_map.parameters()}
    assert {id(parameter) for parameter in parameters} <= known
    new = torch.ones(16, dtype=torch.bool)
    new[FIRST] = False
    gradients = torch.autograd.grad(task_map.theta(2)[new].sum(), parameters, allow_unused=True, materialize_grads=True)
    assert any(bool(gradient.any()) for gradient in gradients)


@pytest.mark.parametrize("name", ["per-task", "shared"])
def test_stored_thetas_take_the_new_elements_from_the_start(name: str, rng: Generator) -> None:
    task_map = TASK_MAPS[name](10, rng)
    task_map.add_task(Start(torch.rand(10, generator=rng)), generator=rng)
    begin = torch.linspace(-1, 1, 16)
    task_map.grow(FIRST, Start(begin), generator=rng)
    new = torch.ones(16, dtype=torch.bool)
    new[FIRST] = False
    assert torch.equal(task_map.theta(0)[new], begin[new])


@pytest.mark.parametrize("name", ["plain", "chunked", "chunked-per-task"])
def test_a_grown_hypernetwork_has_no_idle_parameters(name: str, rng: Generator) -> None:
    grown, fresh = TASK_MAPS[name](10, rng), TASK_MAPS[name](16, rng)
    grown.add_task(_start(10, False), generator=rng)
    grown.grow(FIRST, _start(16, False), generator=rng)
    fresh.add_task(_start(16, False), generator=rng)
    assert grown.num_parameters() == fresh.num_parameters()


@pytest.mark.parametrize("name", ["plain", "chunked"])
def test_new_outputs_of_a_hypernetwork_differ_from_each_other(name: str, rng: Generator) -> None:
    task_map = TASK_MAPS[name](10, rng)
    task_map.add_task(_start(10, False), generator=rng)
    task_map.grow(FIRST, _start(16, False), generator=rng)
    theta: Tensor = task_map.theta(0)
    assert len(theta.unique()) == 16  # every element has its own slot


def test_the_order_of_grown_outputs_is_recomputed_when_it_changes() -> None:
    """After growth, in a copy, and when other numbers are loaded into the same place."""
    generator = torch.Generator().manual_seed(0)
    hypernetwork = PlainHypernetwork(4, hidden=[3], generator=generator)
    hypernetwork.add_task(Start(torch.zeros(4)), generator=generator)
    for old_positions, size in ((torch.tensor([2, 3, 4, 5]), 6), (torch.arange(1, 7), 8)):
        hypernetwork.grow(old_positions, Start(torch.zeros(size)), generator=generator)
        assert hypernetwork.thetas([0]).shape == (1, size)
    for each in (hypernetwork, deepcopy(hypernetwork)):
        plain = each.output_layer(each.hidden([0])).flatten(1)  # (1, L R)
        assert each.slots is not None
        assert torch.equal(each.thetas([0]), plain[:, each.slots])
        each.slots.copy_(each.slots.flip(0))
        assert torch.equal(each.thetas([0]), plain[:, each.slots])
