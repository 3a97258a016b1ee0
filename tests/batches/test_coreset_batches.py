"""Modified coresets: own examples keep their labels, others get uninformative targets; shares, sizes, resuming."""

import pytest
import torch

from metareplay.batches.base import BatchOrder
from metareplay.batches.coresets import CoresetBatches, Others, coreset_batches
from metareplay.benchmarks.base import TaskData
from metareplay.seeding import generator_for

SIZES, CLASSES = (6, 4, 10), (2, 3, 4)


def coreset(task: int, size: int) -> TaskData:
    """The first column says the task, the second the example; an example's class follows from it."""
    x = torch.stack([torch.full((size,), float(task)), torch.arange(size).float()], 1)
    return TaskData(x, torch.arange(size) % CLASSES[task])


def batches(
    others: Others = "uniform", share: float | None = None, size: int = 8, task: int = 1, sizes: tuple[int, ...] = SIZES
) -> CoresetBatches:
    _, found = coreset_batches(
        [coreset(number, count) for number, count in enumerate(sizes)],
        CLASSES[: len(sizes)],
        others=others,
        own_share=share,
        batch_size=size,
        generators=[generator_for(0, "batches", number) for number in range(len(sizes))],
    )
    return found[task]


@pytest.mark.parametrize("share", [None, 0.5])
@pytest.mark.parametrize("task", [0, 1, 2])
def test_own_examples_keep_their_labels_and_others_are_uniform(share: float | None, task: int) -> None:
    source = batches(share=share, task=task)
    assert source.size == 20
    for _ in range(10):
        x, y = source.next()
        own = x[:, 0] == task
        assert y.shape == (8, CLASSES[task])
        assert torch.equal(y[own].argmax(1), x[own, 1].long() % CLASSES[task])
        assert torch.equal(y[own].max(1).values, torch.ones(int(own.sum())))
        assert torch.equal(y[~own], torch.full((int((~own).sum()), CLASSES[task]), 1 / CLASSES[task]))


def test_random_labels_are_redrawn_for_each_batch() -> None:
    source = batches("random", size=20)
    labels = []
    for _ in range(40):
        x, y = source.next()
        assert torch.equal(y.sum(1), torch.ones(20))
        assert torch.equal(y.max(1).values, torch.ones(20))
        place = x[:, 0] * 100 + x[:, 1]
        labels.append(y.argmax(1)[place.argsort()])
        own = x[:, 0] == 1
        assert torch.equal(y[own].argmax(1), x[own, 1].long() % 3)
    counts = torch.stack([torch.stack(labels)[:, :6].eq(label).sum() for label in range(3)])  # inputs of task 0
    assert (counts > 240 / 3 - 30).all()
    assert all(len({int(row[place]) for row in labels}) == 3 for place in range(6))


def test_without_others_the_coreset_is_as_it_was() -> None:
    source = batches("none", size=3)
    assert source.size == 4
    seen = [source.next() for _ in range(4)]
    assert all((x[:, 0] == 1).all() and torch.equal(y, x[:, 1].long() % 3) for x, y in seen)
    assert sorted(torch.cat([x[:, 1] for x, _ in seen]).tolist()) == sorted([0.0, 1.0, 2.0, 3.0] * 3)


def test_a_single_task_has_no_others() -> None:
    source = batches(share=0.5, size=4, task=0, sizes=(6,))
    x, y = source.next()
    assert (x[:, 0] == 0).all()
    assert torch.equal(y.argmax(1), x[:, 1].long() % 2)


def test_the_default_share_is_that_of_all_coresets_together() -> None:
    source, seen = batches(size=8), []
    for _ in range(5):  # two epochs of 20
        seen.append(source.next().x)
    rows, counts = torch.cat(seen).unique(dim=0, return_counts=True)
    assert len(rows) == 20
    assert counts.tolist() == [2] * 20


@pytest.mark.parametrize(
    ("share", "size", "own"), [(0.5, 8, 4), (0.25, 8, 2), (0.75, 8, 6), (0.01, 8, 1), (0.99, 8, 7), (0.9, 100, 18)]
)
def test_the_own_share_of_a_batch(share: float, size: int, own: int) -> None:
    """Also where it needs more examples than the coreset has: then they repeat."""
    source = batches(share=share, size=size)
    for _ in range(7):
        x = source.next().x
        assert len(x) == min(size, 20)
        mine = x[x[:, 0] == 1]
        assert len(mine) == own
        counts = mine.unique(dim=0, return_counts=True)[1]
        assert int(counts.max()) <= -(-own // 4) + 1


def test_a_restored_source_continues() -> None:
    for others, share in (("random", 0.4), ("uniform", None), ("random", None)):
        whole, broken, again = (batches(others, share) for _ in range(3))  # type: ignore[arg-type]
        for _ in range(3):
            whole.next()
            broken.next()
        again.restore(broken.tensors())
        for _ in range(4):
            for expected, found in zip(whole.next(), again.next(), strict=True):
                assert torch.equal(expected, found)


def test_a_batch_may_be_several_epochs_long() -> None:
    order = BatchOrder(3, 8, generator_for(0, "batches"), repeat=True)
    chosen = torch.cat([order.next() for _ in range(3)])
    assert torch.bincount(chosen).tolist() == [8, 8, 8]
    assert BatchOrder(3, 8, generator_for(0, "batches")).next().tolist() != []
    assert len(BatchOrder(3, 8, generator_for(0, "batches")).next()) == 3
