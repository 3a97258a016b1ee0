"""Shapes, parameter counts, embeddings and tasks of plain, chunked and separate hypernetworks."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor

from metareplay.task_maps.base import Start
from metareplay.task_maps.chunked import ChunkedHypernetwork
from metareplay.task_maps.hypernetwork import Hypernetwork, PerTaskHypernetworks, PlainHypernetwork

Make = Callable[[int, Generator], Hypernetwork]
HYPERNETWORKS: dict[str, Make] = {
    "plain": lambda size, rng: PlainHypernetwork(size, hidden=(6, 5), task_embedding_size=3, generator=rng),
    "linear": lambda size, rng: PlainHypernetwork(size, hidden=(), task_embedding_size=3, generator=rng),
    "chunked": lambda size, rng: ChunkedHypernetwork(
        size, hidden=(6, 5), chunk_size=4, task_embedding_size=3, chunk_embedding_size=2, generator=rng
    ),
    "chunked-per-task": lambda size, rng: ChunkedHypernetwork(
        size,
        hidden=(6, 5),
        chunk_size=4,
        task_embedding_size=3,
        chunk_embedding_size=2,
        chunk_embeddings_per_task=True,
        generator=rng,
    ),
}


def start(size: int) -> Start:
    return Start(torch.zeros(size))


def with_tasks(make: Make, size: int, tasks: int, generator: Generator) -> Hypernetwork:
    hypernetwork = make(size, generator)
    for _ in range(tasks):
        hypernetwork.add_task(start(size), generator=generator)
    return hypernetwork


@pytest.mark.parametrize("kind", HYPERNETWORKS)
@pytest.mark.parametrize("size", [1, 4, 7, 12])
def test_shapes(kind: str, size: int, rng: Generator) -> None:
    hypernetwork = with_tasks(HYPERNETWORKS[kind], size, 3, rng)
    thetas = hypernetwork.thetas([2, 0])
    assert thetas.shape == (2, size)
    assert thetas.isfinite().all()
    assert hypernetwork.num_tasks == 3
    torch.testing.assert_close(thetas[1], hypernetwork.theta(0))
    torch.testing.assert_close(thetas[0], hypernetwork.theta(2))
    assert not torch.allclose(thetas[0], thetas[1])


def test_a_linear_hypernetwork_in_chunks_moves_every_chunk_alike(rng: Generator) -> None:
    """Why the weights for tables are generated at once (``learner.sizes``): tasks differ by one chunk's elements."""
    sizes = {"hidden": (), "task_embedding_size": 3, "generator": rng}
    chunked = with_tasks(lambda size, _: ChunkedHypernetwork(size, chunk_size=4, **sizes), 12, 2, rng)
    plain = with_tasks(lambda size, _: PlainHypernetwork(size, **sizes), 12, 2, rng)
    of_chunked, of_plain = ((h.theta(1) - h.theta(0)).view(3, 4) for h in (chunked, plain))  # (12,) -> (L, R)
    torch.testing.assert_close(of_chunked, of_chunked[:1].expand(3, 4))
    assert not torch.allclose(of_plain, of_plain[:1].expand(3, 4))


HIDDEN = (6 + 1) * 5


@pytest.mark.parametrize(
    ("kind", "size", "shared", "per_task"),
    [
        ("plain", 7, (3 + 1) * 6 + HIDDEN + (5 + 1) * 7, 3),
        ("linear", 7, (3 + 1) * 7, 3),
        ("chunked", 7, (3 + 2 + 1) * 6 + HIDDEN + (5 + 1) * 4 + 2 * 2, 3),  # two chunks
        ("chunked", 8, (3 + 2 + 1) * 6 + HIDDEN + (5 + 1) * 4 + 2 * 2, 3),
        ("chunked", 9, (3 + 2 + 1) * 6 + HIDDEN + (5 + 1) * 4 + 3 * 2, 3),
        ("chunked-per-task", 9, (3 + 2 + 1) * 6 + HIDDEN + (5 + 1) * 4, 3 + 3 * 2),
    ],
)
def test_number_of_parameters(kind: str, size: int, shared: int, per_task: int, rng: Generator) -> None:
    for tasks in (1, 4):
        hypernetwork = with_tasks(HYPERNETWORKS[kind], size, tasks, rng)
        assert hypernetwork.num_parameters() == shared + tasks * per_task
        assert hypernetwork.per_task_parameters() == per_task


def test_a_plain_hypernetwork_is_an_mlp_on_the_task_embedding(rng: Generator) -> None:
    hypernetwork = with_tasks(HYPERNETWORKS["plain"], 7, 2, rng)
    first, second = hypernetwork.hidden_layers
    h = torch.relu(second(torch.relu(first(hypernetwork.task_embeddings[1]))))
    torch.testing.assert_close(hypernetwork.theta(1), hypernetwork.output_layer(h))


@pytest.mark.parametrize("kind", ["chunked", "chunked-per-task"])
@pytest.mark.parametrize("size", [8, 10])
def test_a_chunked_hypernetwork_is_called_once_per_chunk(kind: str, size: int, rng: Generator) -> None:
    hypernetwork = with_tasks(HYPERNETWORKS[kind], size, 2, rng)
    assert isinstance(hypernetwork, ChunkedHypernetwork)
    assert hypernetwork.num_chunks == math.ceil(size / 4)
    chunk_embeddings = hypernetwork.chunk_embeddings[1 if kind == "chunked-per-task" else 0]
    first, second = hypernetwork.hidden_layers
    chunks = []
    for embedding in chunk_embeddings:
        row = torch.cat([hypernetwork.task_embeddings[1], embedding])
        chunks.append(hypernetwork.output_layer(torch.relu(second(torch.relu(first(row))))))
    torch.testing.assert_close(hypernetwork.theta(1), torch.cat(chunks)[:size])  # the rest of the last chunk is cut


def test_chunk_embeddings_are_shared_or_not(rng: Generator) -> None:
    shared = with_tasks(HYPERNETWORKS["chunked"], 10, 3, rng)
    own = with_tasks(HYPERNETWORKS["chunked-per-task"], 10, 3, rng)
    assert isinstance(shared, ChunkedHypernetwork)
    assert isinstance(own, ChunkedHypernetwork)
    assert [tuple(part.shape) for part in shared.chunk_embeddings] == [(3, 2)]
    assert [tuple(part.shape) for part in own.chunk_embeddings] == [(3, 2)] * 3
    assert not torch.equal(own.chunk_embeddings[0], own.chunk_embeddings[1])
    gradients = torch.autograd.grad(
        own.theta(1).sum(), list(own.chunk_embeddings), allow_unused=True, materialize_grads=True
    )
    assert [bool(gradient.any()) for gradient in gradients] == [False, True, False]


@pytest.mark.parametrize(("task_std", "chunk_std"), [(1.0, 0.1), (0.2, 3.0)])
def test_embeddings_have_the_requested_standard_deviation(task_std: float, chunk_std: float, rng: Generator) -> None:
    hypernetwork = ChunkedHypernetwork(
        2000,
        hidden=(2,),
        chunk_size=2,
        task_embedding_size=2000,
        task_embedding_std=task_std,
        chunk_embedding_size=5,
        chunk_embedding_std=chunk_std,
        generator=rng,
    )
    hypernetwork.add_task(start(2000), generator=rng)
    for embedding, std in ((hypernetwork.task_embeddings[0], task_std), (hypernetwork.chunk_embeddings[0], chunk_std)):
        values = embedding.detach().flatten()
        # five standard errors
        assert abs(float(values.square().mean().sqrt()) / std - 1) < 5 / math.sqrt(2 * len(values))
        assert abs(float(values.mean())) < 5 * std / math.sqrt(len(values))


@pytest.mark.parametrize("kind", HYPERNETWORKS)
def test_a_new_task_leaves_the_old_ones_exactly_as_they_were(kind: str, rng: Generator) -> None:
    hypernetwork = with_tasks(HYPERNETWORKS[kind], 10, 2, rng)
    before = [hypernetwork.theta(task).detach().clone() for task in range(2)]
    together = hypernetwork.thetas([0, 1]).detach().clone()
    # variances matter to the first task only
    hypernetwork.add_task(Start(torch.zeros(10), torch.ones(10)), generator=rng)
    assert all(torch.equal(hypernetwork.theta(task), before[task]) for task in range(2))
    assert torch.equal(hypernetwork.thetas([0, 1]), together)
    assert not torch.equal(hypernetwork.theta(2), before[1])


@pytest.mark.parametrize("kind", HYPERNETWORKS)
def test_the_start_depends_on_the_generator_only(kind: str) -> None:
    def theta(seed: int, global_seed: int) -> Tensor:
        torch.manual_seed(global_seed)
        return with_tasks(HYPERNETWORKS[kind], 10, 1, Generator().manual_seed(seed)).theta(0)

    assert torch.equal(theta(3, 1), theta(3, 2))
    assert not torch.equal(theta(3, 1), theta(4, 1))


@pytest.mark.parametrize("kind", HYPERNETWORKS)
def test_separate_hypernetworks_share_nothing(kind: str, rng: Generator) -> None:
    separate = PerTaskHypernetworks(10, HYPERNETWORKS[kind])
    for _ in range(3):
        separate.add_task(start(10), generator=rng)
    assert separate.thetas([2, 0]).shape == (2, 10)
    assert torch.equal(separate.thetas([2, 0])[1], separate.theta(0))
    single = with_tasks(HYPERNETWORKS[kind], 10, 1, rng)
    assert separate.num_parameters() == 3 * single.num_parameters()
    assert separate.per_task_parameters() == single.num_parameters()
    ids = [{id(parameter) for parameter in separate.trained_parameters(task)} for task in range(3)]
    assert not ids[0] & ids[1]
    assert not ids[1] & ids[2]
    separate.theta(1).sum().backward()
    assert all(parameter.grad is None for task in (0, 2) for parameter in separate.trained_parameters(task))
    assert all(parameter.grad is not None for parameter in separate.trained_parameters(1))
