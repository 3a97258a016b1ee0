"""Strangers: the share of a task's own inputs that is rejected, and inputs of other kinds."""

import pytest
import torch
from torch import Generator, Tensor

from metareplay.inference.statistics.evidence import TaskEvidence
from metareplay.inference.statistics.unknown import calibrated, measures, strangeness


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
