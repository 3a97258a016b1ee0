"""The order of examples: once an epoch, across epochs' ends, and the same after a restart."""

import pytest
import torch

from metareplay.batches.base import BatchOrder
from metareplay.errors import CheckpointError
from metareplay.seeding import generator_for


def order(size: int, batch_size: int, seed: int = 0) -> BatchOrder:
    return BatchOrder(size, batch_size, generator_for(seed, "batches", 0))


@pytest.mark.parametrize(("size", "batch_size"), [(12, 4), (10, 4), (7, 3), (5, 5), (1, 1), (9, 2)])
def test_every_epoch_visits_each_example_once(size: int, batch_size: int) -> None:
    batches = order(size, batch_size)
    epochs = 6
    drawn = torch.cat([batches.next() for _ in range(-(-size * epochs // batch_size))])
    for epoch in drawn[: size * epochs].split(size):
        assert epoch.sort().values.tolist() == list(range(size))


def test_epochs_have_different_orders() -> None:
    batches = order(50, 50)
    assert batches.next().tolist() != batches.next().tolist()


def test_a_batch_across_the_end_takes_its_rest_from_the_next_epoch() -> None:
    batches = order(5, 3)
    first, crossing, third = batches.next(), batches.next(), batches.next()
    assert [len(first), len(crossing), len(third)] == [3, 3, 3]
    assert sorted([*first.tolist(), *crossing[:2].tolist()]) == [0, 1, 2, 3, 4]
    rest = [int(crossing[2]), *third.tolist()]
    assert len(set(rest)) == 4  # all of one new epoch


@pytest.mark.parametrize("batch_size", [4, 128])
def test_a_small_data_set_gives_all_it_has(batch_size: int) -> None:
    batches = order(3, batch_size)
    assert batches.batches_per_epoch == 1
    for _ in range(4):
        assert batches.next().sort().values.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("size", "batch_size", "expected"), [(12, 4, 3), (13, 4, 4), (1, 4, 1), (4, 1, 4)])
def test_batches_per_epoch(size: int, batch_size: int, expected: int) -> None:
    assert order(size, batch_size).batches_per_epoch == expected


def test_the_seed_fixes_the_order() -> None:
    first, again, other = order(20, 7, seed=3), order(20, 7, seed=3), order(20, 7, seed=4)
    drawn = [[batches.next().tolist() for _ in range(6)] for batches in (first, again, other)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


@pytest.mark.parametrize("stop", range(9))
def test_restoring_continues_bit_for_bit(stop: int) -> None:
    whole, broken = order(10, 4), order(10, 4)
    expected = [whole.next().tolist() for _ in range(12)]
    seen = [broken.next().tolist() for _ in range(stop)]
    stored = {name: tensor.clone() for name, tensor in broken.tensors().items()}
    fresh = order(10, 4, seed=99)  # its own generator is replaced by the stored one
    fresh.restore(stored)
    assert seen + [fresh.next().tolist() for _ in range(12 - stop)] == expected


def test_changed_data_are_refused() -> None:
    batches = order(10, 4)
    batches.next()
    with pytest.raises(CheckpointError, match=r"10 training examples, this task has 11"):
        order(11, 4).restore(batches.tensors())
