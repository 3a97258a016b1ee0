"""Strangers: the share of a task's own inputs that is rejected, and inputs of other kinds."""

import pytest
import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from metareplay import ContinualClassifier
from metareplay.inference.statistics.evidence import TaskEvidence
from metareplay.inference.statistics.unknown import (
    CONTRAST,
    beyond_bounds,
    calibrated,
    contrast_bounds,
    measures,
    strangeness,
)


def evidence_of(rng: Generator, rows: int, tasks: int = 1, scale: float = 1.0, shift: float = 0.0) -> TaskEvidence:
    """Costs as they look: entropies mostly tiny, -log p(x) with a tail, residuals on a log scale."""

    def normal() -> Tensor:
        return torch.randn(tasks, rows, generator=rng, dtype=torch.float64)

    return TaskEvidence(
        inputs=scale * (300 + 20 * normal().square()) + shift,
        residuals=scale * normal() + shift,
        entropies=(3 * normal() - 6).exp(),
        energies=normal(),
        margins=normal(),
    )


def first(rows: int) -> Tensor:
    return torch.zeros(rows, dtype=torch.int64)


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_a_tasks_own_inputs_are_rejected_as_often_as_stated(rate: float, rng: Generator) -> None:
    shares = []
    for _ in range(20):
        stored = calibrated(measures(evidence_of(rng, 300), first(300)), rate)
        strange = strangeness(evidence_of(rng, 2000), first(2000), [stored])
        assert (strange >= 0).all()
        shares.append(float((strange > 1).double().mean()))
    assert sum(shares) / len(shares) == pytest.approx(rate, abs=0.01)


def test_strangers_are_rejected_whatever_makes_them_strange(rng: Generator) -> None:
    stored = calibrated(measures(evidence_of(rng, 500), first(500)), 0.05)
    for stranger in (
        evidence_of(rng, 100, shift=1000.0),  # an improbable input
        evidence_of(rng, 100, scale=0.0, shift=-20.0),  # too close to the principal directions
    ):
        assert (strangeness(stranger, first(100), [stored]) > 1).all()


def test_one_wild_measure_counts_for_so_much_and_no_more(rng: Generator) -> None:
    stored = calibrated(measures(evidence_of(rng, 500), first(500)), 0.05)
    strangers = [evidence_of(Generator().manual_seed(1), 9, shift=shift) for shift in (1e5, 1e9)]
    far, farther = (strangeness(stranger, first(9), [stored]) for stranger in strangers)
    torch.testing.assert_close(far, farther)


def test_each_input_is_judged_by_its_task(rng: Generator) -> None:
    """The second task's costs are ten times as large: its units and threshold are its own."""
    one, two = evidence_of(rng, 400), evidence_of(rng, 400, scale=10.0)
    stored = [calibrated(measures(evidence, first(400)), 0.05) for evidence in (one, two)]
    both = TaskEvidence(
        inputs=torch.cat([one.inputs, two.inputs]),
        residuals=torch.cat([one.residuals, two.residuals]),
        entropies=torch.cat([one.entropies, two.entropies]),
        energies=torch.cat([one.energies, two.energies]),
        margins=torch.cat([one.margins, two.margins]),
    )
    tasks = torch.arange(400) % 2
    together = strangeness(both, tasks, list(stored))
    for task, (evidence, own) in enumerate(zip((one, two), stored, strict=True)):
        alone = strangeness(evidence, first(400), [own])
        torch.testing.assert_close(together[tasks == task], alone[tasks == task])


def test_one_held_out_input_is_enough_for_a_threshold(rng: Generator) -> None:
    stored = calibrated(measures(evidence_of(rng, 1), first(1)), 0.05)
    assert all(values.isfinite().all() for values in stored.values())
    assert strangeness(evidence_of(rng, 5), first(5), [stored]).isfinite().all()


def test_narrow_inputs_are_never_too_close(rng: Generator) -> None:
    near = evidence_of(rng, 100, scale=0.0, shift=-20.0)  # within the subspace
    own = measures(evidence_of(rng, 500), first(500))
    assert (strangeness(near, first(100), [calibrated(own, 0.05)]) > 1).all()
    assert (strangeness(near, first(100), [calibrated(own, 0.05, features=7)]) > 1).double().mean() < 0.2


def test_rows_of_categories_are_known(rng: Generator) -> None:
    """Groups of rows with the same categories vary in few directions, and lie within their subspace."""
    model = ContinualClassifier(settings={"training.iterations": 30, "inference.samples": 5}, seed=0)

    def month(count: int) -> tuple[Tensor, Tensor]:
        groups, kinds = (torch.randint(most, (count,), generator=rng) for most in (5, 3))
        numbers = torch.randn(count, 2, generator=rng)
        y = numbers[:, 0] + (groups > 2).float() > (kinds == 1).float()
        return torch.cat([numbers, one_hot(groups, 5), one_hot(kinds, 3)], 1), y.long()

    for name in ("first", "second", "third"):
        x, y = month(156)
        model.learn_task(x.numpy(), y.numpy(), name=name)
    x = month(300)[0]
    assert model.predict_full(x.numpy()).known.mean() > 0.93
    assert not model.predict_full(10 * x.numpy()).known.any()


def images(rng: Generator, count: int = 200) -> Tensor:
    """Bright strokes on a dark ground, of different contrast."""
    drawn = (torch.rand(count, 1, 6, 6, generator=rng) < 0.3).float()
    drawn[:, 0, 0, 0] = 1.0
    return drawn * (0.7 + 0.3 * torch.rand(count, 1, 1, 1, generator=rng)) - 0.2


def test_images_without_contrast_or_with_far_too_much_are_beyond_the_bounds(rng: Generator) -> None:
    stored = contrast_bounds(images(rng))
    known = images(rng)
    assert (beyond_bounds(known, first(len(known)), [stored]) < 0.7).all()
    for stranger in (0 * known, torch.full_like(known, 0.8), 50 * known):
        assert (beyond_bounds(stranger, first(len(known)), [stored]) > 1).all()


def test_bounds_of_contrast_are_those_of_the_images_task_and_widen(rng: Generator) -> None:
    plain, pale = images(rng), 0.01 * images(rng)
    stored = [contrast_bounds(plain), contrast_bounds(pale)]
    both, tasks = torch.cat([plain, pale]), torch.cat([first(len(plain)), first(len(pale)) + 1])
    assert (beyond_bounds(both, tasks, stored) <= 1).all()
    assert (beyond_bounds(both, 1 - tasks, stored) > 1).all()
    wider = contrast_bounds(pale, stored[0][CONTRAST])
    assert (beyond_bounds(both, torch.zeros_like(tasks), [wider]) <= 1).all()


def test_other_inputs_have_no_contrast(rng: Generator) -> None:
    rows = torch.randn(50, 4, generator=rng)
    assert contrast_bounds(rows) == {}
    assert not beyond_bounds(rows, first(50), [{}]).any()


def test_a_blank_image_is_unknown(rng: Generator) -> None:
    model = ContinualClassifier(settings={"training.iterations": 30, "inference.samples": 5}, seed=0)
    for name in ("first", "second"):
        model.learn_task(images(rng).numpy(), (torch.rand(200, generator=rng) < 0.5).long().numpy(), name=name)
    own, blank = images(rng), torch.full((1, 1, 6, 6), -0.2)
    assert model.predict_full(own.numpy()).known.mean() > 0.8
    for task in (None, "first"):
        assert not model.predict_full(blank.numpy(), task).known[0]
