"""The learning rate over epochs: steps, plateaus, and both together; resumed bit for bit."""

from typing import Any

import pytest
import torch
from torch import nn

from metareplay.training.schedule import LearningRate
from metareplay.training.settings import TrainingSettings

CIFAR = ((80, 0.1), (120, 0.01), (160, 0.001), (180, 0.0005))


def _schedule(steps_per_epoch: int = 1, **settings: Any) -> LearningRate:
    optimiser = torch.optim.Adam([nn.Parameter(torch.zeros(2))], lr=0.5)
    return LearningRate(TrainingSettings(learning_rate=0.5, **settings), optimiser, steps_per_epoch, 40)


def _used(schedule: LearningRate) -> float:
    return float(schedule.optimiser.param_groups[0]["lr"])


def test_the_published_steps_change_the_rate_after_their_epochs() -> None:
    schedule, seen = _schedule(steps_per_epoch=3, rate_steps=CIFAR), []
    for step in range(200 * 3):
        if step % 3 == 0:
            seen.append(_used(schedule))
        before = _used(schedule)
        schedule.after_step(torch.tensor(1.0))
        assert _used(schedule) == before or (step + 1) % 3 == 0  # only at the end of an epoch
    expected = [0.5] * 80 + [0.05] * 40 + [0.005] * 40 + [0.0005] * 20 + [0.00025] * 20
    assert seen == pytest.approx(expected)


def test_a_cosine_falls_to_nothing_over_a_task() -> None:
    schedule, seen = _schedule(steps_per_epoch=7, cosine=True), []
    for _ in range(41):
        seen.append(_used(schedule))
        schedule.after_step(torch.tensor(1.0))
    assert seen[0] == 0.5
    assert seen[20] == pytest.approx(0.25)
    assert seen[40] == pytest.approx(0.0, abs=1e-12)
    assert seen == sorted(seen, reverse=True)
    assert _used(schedule) == pytest.approx(0.0, abs=1e-12)  # further steps change nothing


def test_a_cosine_excludes_other_schedules() -> None:
    with pytest.raises(ValueError, match="cosine is a complete schedule"):
        TrainingSettings(cosine=True, plateau_patience=3)


def test_a_plateau_reduces_the_rate_once_patience_is_over() -> None:
    schedule, seen = _schedule(plateau_patience=2, plateau_factor=0.1), []
    for loss in (5.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 3.0, 3.0):
        schedule.after_step(torch.tensor(loss))
        seen.append(_used(schedule))
    assert seen == pytest.approx([0.5, 0.5, 0.5, 0.5, 0.05, 0.05, 0.05, 0.005, 0.005, 0.005])


def test_it_is_the_mean_over_an_epoch_that_must_fall() -> None:
    schedule = _schedule(steps_per_epoch=2, plateau_patience=1, plateau_factor=0.1)
    for losses in ((5.0, 1.0), (1.0, 4.9), (4.8, 1.0)):  # means 3, 2.95, 2.9
        for loss in losses:
            schedule.after_step(torch.tensor(loss))
    assert _used(schedule) == 0.5


def test_the_rate_does_not_fall_below_the_floor() -> None:
    schedule = _schedule(plateau_patience=1, plateau_factor=0.01, plateau_floor=0.01)
    for _ in range(20):
        schedule.after_step(torch.tensor(1.0))
    assert _used(schedule) == 0.01


def test_a_step_below_the_floor_is_left_alone() -> None:
    schedule = _schedule(plateau_patience=1, plateau_factor=0.5, plateau_floor=0.1, rate_steps=((10, 0.01),))
    for _ in range(20):
        schedule.after_step(torch.tensor(1.0))
    assert _used(schedule) == pytest.approx(0.005)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_losses_that_are_no_numbers_count_as_no_progress(loss: float) -> None:
    schedule = _schedule(plateau_patience=1)
    for value in (1.0, loss, loss, loss):
        schedule.after_step(torch.tensor(value))
    assert _used(schedule) < 0.5


@pytest.mark.parametrize(
    "settings", [{"rate_steps": ((2, 0.3), (4, 0.1))}, {"plateau_patience": 1}, {"cosine": True}, {}]
)
def test_a_restored_schedule_goes_on_as_if_nothing_had_happened(settings: dict[str, Any]) -> None:
    losses = torch.rand(40, generator=torch.Generator().manual_seed(0))
    first = _schedule(3, **settings)
    for loss in losses[:10]:
        first.after_step(loss)
    again = _schedule(3, **settings)
    again.restore({name: tensor.clone() for name, tensor in first.tensors().items()})
    assert _used(again) == _used(first)
    for loss in losses[10:]:
        first.after_step(loss)
        again.after_step(loss)
        assert _used(again) == _used(first)


def test_without_settings_nothing_is_stored() -> None:
    schedule = _schedule()
    schedule.after_step(torch.tensor(1.0))
    assert schedule.tensors() == {}
    assert _used(schedule) == 0.5
