"""Detectors of change, and where a change began."""

import pytest
import torch

from metareplay.errors import ConfigError
from metareplay.seeding import generator_for
from metareplay.streams.detectors import DETECTORS, Reference, change_point
from metareplay.streams.report import StreamEvent, StreamReport, detections
from metareplay.streams.settings import StreamSettings

KINDS = sorted(DETECTORS)


def values(rate: float, count: int, seed: int = 0) -> torch.Tensor:
    """A signal of zeros and ones."""
    return (torch.rand(count, generator=generator_for(seed, "signal")) < rate).double()


def alarm(kind: str, signal: torch.Tensor, reference: Reference) -> int | None:
    detector = DETECTORS[kind](reference, StreamSettings(detector=kind))
    return next((index for index, value in enumerate(signal.tolist()) if detector.update(value)), None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rise_is_noticed_soon_after_it_begins(kind: str) -> None:
    reference = Reference.of(values(0.05, 60, seed=1))
    noticed = alarm(kind, torch.cat([values(0.05, 300), values(0.7, 100)]), reference)
    assert noticed is not None
    assert 300 <= noticed <= 345


@pytest.mark.parametrize("kind", KINDS)
def test_an_unchanged_signal_raises_no_alarm(kind: str) -> None:
    reference = Reference.of(values(0.05, 60, seed=1))
    assert [alarm(kind, values(0.05, 2000, seed=seed), reference) for seed in range(5)] == [None] * 5


def test_adwin_ignores_a_fall() -> None:
    assert alarm("adwin", torch.cat([values(0.7, 300), values(0.05, 300)]), Reference(0.7, 0.4)) is None


def test_few_held_out_examples_do_not_make_a_narrow_reference() -> None:
    assert Reference.of(torch.zeros(3)).highest_mean(20, 6.0) > Reference.of(torch.zeros(300)).highest_mean(20, 6.0)


def test_the_change_point_is_where_the_values_rise() -> None:
    signal = torch.tensor([0.0, 0.1, 0.0, 0.0, 0.9, 0.8, 0.1, 0.9])
    assert change_point(signal, Reference(0.05, 0.1)) == 4


def test_alarms_are_compared_with_true_boundaries() -> None:
    found = detections(alarms=[50, 105, 130, 320], boundaries=[100, 200, 300])
    assert found.delays == [5, 20]
    assert found.missed == 1
    assert found.false_alarms == 2


def test_a_dismissed_boundary_does_not_count() -> None:
    events = [StreamEvent("boundary", 10), StreamEvent("dismissed", 12), StreamEvent("boundary", 40)]
    assert [event.example for event in StreamReport(events, 60).changes()] == [40]


def test_unknown_and_invalid_settings_are_named() -> None:
    with pytest.raises(ConfigError, match=r"stream.windo is unknown; settings of streams are detector, "):
        StreamSettings.of({"windo": 3})
    with pytest.raises(ConfigError, match=r"stream.window=1 is invalid"):
        StreamSettings.of({"window": 1})
