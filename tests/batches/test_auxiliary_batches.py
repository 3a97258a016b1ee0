"""Batches for auxiliary outputs: labels, numbers of copies, and that they resume bit for bit."""

import pytest
import torch

from metareplay.batches.auxiliary import AuxiliaryBatches, AuxiliaryOutputs, transformed_copies
from metareplay.batches.task import TaskBatches
from metareplay.batches.transformations import transformations_for
from metareplay.benchmarks.base import TaskData

CLASSES, SHAPE = 3, (1, 4, 4)


def task_data() -> TaskData:
    generator = torch.Generator().manual_seed(0)
    return TaskData(torch.rand(20, *SHAPE, generator=generator), torch.randint(CLASSES, (20,), generator=generator))


def plain_batches(seed: int = 2) -> TaskBatches:
    return TaskBatches(task_data(), 8, torch.Generator().manual_seed(seed))


def batches_with(outputs: AuxiliaryOutputs, copies: float = 1.0, seed: int = 2) -> AuxiliaryBatches:
    return AuxiliaryBatches(
        plain_batches(seed),
        CLASSES,
        outputs,
        copies=copies,
        transformations=transformations_for(SHAPE, rotations=outputs.rotations),
        generator=torch.Generator().manual_seed(seed + 1),
    )


def test_outputs_of_a_task() -> None:
    """Its classes, each orientation of them, "other"."""
    assert [AuxiliaryOutputs(*given).count(CLASSES) for given in ((False, False), (True, False))] == [0, 9]
    assert [AuxiliaryOutputs(*given).count(CLASSES) for given in ((False, True), (True, True))] == [1, 10]
    assert AuxiliaryOutputs(False, True).other_label(CLASSES) == 3
    assert AuxiliaryOutputs(True, True).other_label(CLASSES) == 12


def test_rotated_images_have_classes_of_their_own() -> None:
    """Class c after r quarter turns is c + C r; images are those of an ordinary batch, in the same order."""
    plain, batches = plain_batches(), batches_with(AuxiliaryOutputs(rotations=True))
    assert (batches.size, batches.batches_per_epoch) == (4 * 20, 3)
    for _ in range(4):
        upright, batch = plain.next(), batches.next()
        assert len(batch.x) == len(batch.y) == 32
        for row, (image, label) in enumerate(zip(*batch, strict=True)):
            turn, source = divmod(row, 8)
            assert torch.equal(image, upright.x[source].rot90(turn, (1, 2)))
            assert label == upright.y[source] + CLASSES * turn


@pytest.mark.parametrize(("copies", "count"), [(0.01, 1), (0.5, 4), (1.0, 8), (2.5, 20)])
@pytest.mark.parametrize("rotations", [False, True])
def test_transformed_copies_are_other(rotations: bool, copies: float, count: int) -> None:
    outputs = AuxiliaryOutputs(rotations, other=True)
    versions = 4 if rotations else 1
    plain, batches = plain_batches(), batches_with(outputs, copies)
    assert batches.size == round((versions + copies) * 20)
    upright, batch = plain.next(), batches.next()
    own = versions * 8
    assert torch.equal(batch.x[:8], upright.x)
    assert torch.equal(batch.y[:8], upright.y)
    assert len(batch.x) == own + count
    assert (batch.y[:own] < outputs.other_label(CLASSES)).all()
    assert (batch.y[own:] == outputs.other_label(CLASSES)).all()
    different = (batch.x[own:, None] != batch.x[None, :own]).flatten(2).any(2)  # (M, own)
    assert different.all()


def test_every_input_is_copied_before_any_is_copied_again() -> None:
    x = torch.arange(6.0).view(6, 1)
    generator = torch.Generator().manual_seed(0)
    copies = transformed_copies(x, 9, [lambda x, rows, generator: x[rows]], generator=generator)
    assert sorted(copies.flatten().unique(return_counts=True)[1].tolist()) == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("outputs", [AuxiliaryOutputs(True, False), AuxiliaryOutputs(False, True)])
def test_they_continue_where_a_checkpoint_stopped(outputs: AuxiliaryOutputs) -> None:
    batches = batches_with(outputs)
    batches.next()
    stored = {name: tensor.clone() for name, tensor in batches.tensors().items()}
    rest = [batches.next() for _ in range(5)]
    again = batches_with(outputs, seed=7)
    again.restore(stored)
    for expected in rest:
        actual = again.next()
        assert torch.equal(expected.x, actual.x)
        assert torch.equal(expected.y, actual.y)
