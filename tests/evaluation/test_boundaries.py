"""Thresholds that find the boundaries of tasks."""

import json
from pathlib import Path

import pytest
import torch

from metareplay.errors import DataError
from metareplay.evaluation.boundaries import Thresholds, grace_period, over_runs, read_signals, thresholds
from metareplay.experiments.plan import Plan
from metareplay.experiments.run import Run
from metareplay.interrupts import Interrupted
from metareplay.learner.config import build_config

PEAKS = torch.tensor(
    [
        [9.0, 9.0, 5.0, 1.0, 0.0, 2.0],
        [8.0, 6.0, 3.0, 1.0, 1.0, 1.0],
        [10.0, 8.0, 1.0, 1.0, 2.0, 0.0],
    ]
)


def test_thresholds_lie_between_the_lowest_boundary_and_the_highest_rest() -> None:
    actual = thresholds(PEAKS, window=2, grace=3)
    assert actual == Thresholds(at_boundaries=7.0, elsewhere=1.5, lowest=0.5, highest=9.0)
    assert actual.viable_share == pytest.approx(100 * 5.5 / 8.5)


def test_a_signal_that_does_not_rise_has_no_viable_threshold() -> None:
    assert thresholds(torch.ones(3, 6), window=2, grace=2).viable_share <= 0
    assert thresholds(1 - PEAKS, window=2, grace=3).viable_share < 0


def test_the_grace_period_is_the_papers_or_leaves_a_window() -> None:
    signal = torch.rand(2, 1500, generator=torch.Generator().manual_seed(0))
    for iterations, grace in ((1500, 1000), (300, 290), (5, 0)):
        assert grace_period(iterations) == grace
        means = signal[:, :iterations].double().unfold(1, min(10, iterations), 1).mean(-1)
        assert thresholds(signal[:, :iterations]).elsewhere == pytest.approx(float(means[:, grace:].max()))


def test_the_first_task_has_no_boundary() -> None:
    calm = PEAKS.clone()
    calm[0, :3] = 0
    assert thresholds(calm, window=2, grace=3).at_boundaries == 7.0
    with pytest.raises(DataError, match="two tasks"):
        thresholds(PEAKS[:1])


def test_short_tasks_are_judged_by_their_last_window() -> None:
    assert thresholds(PEAKS, window=2, grace=1000).elsewhere == 1.0
    assert thresholds(PEAKS, window=100, grace=1000).at_boundaries == pytest.approx(20 / 6)


def test_over_runs_the_narrowest_range_counts() -> None:
    actual = over_runs([Thresholds(7, 1, 0, 9), Thresholds(8, 2, -1, 8)])
    assert actual == Thresholds(7, 2, -1, 9)


def test_a_run_records_its_signals_and_resumes_to_the_same(tmp_path: Path) -> None:
    given = {
        "training.iterations": 12,
        "training.checkpoint_every": 5,
        "training.record_signals": True,
        "inference.samples": 3,
        "network": "mlp-10",
        "report.references": False,
        "inference.test_inputs": 20,
    }
    config = build_config({"benchmark": "split-digits", "method": "pr-bbb"}, given, "test")
    whole = Run(Plan.of(config, tmp_path / "whole")).execute()
    signals = read_signals(tmp_path / "whole")
    assert signals.shape == (5, 12, 2)
    assert signals.isfinite().all()
    assert (signals[..., 1] >= 0).all()
    assert set(whole.task_boundaries) == {"loss", "uncertainty"}
    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls > 17

    with pytest.raises(Interrupted):
        Run(Plan.of(config, tmp_path / "parts"), should_stop=stop).execute()
    Run(Plan.of(config, tmp_path / "parts")).execute(resume=True)
    assert torch.equal(read_signals(tmp_path / "parts"), signals)
    results = [
        json.loads((tmp_path / name / "results.json").read_text())["task_boundaries"] for name in ("whole", "parts")
    ]
    assert results[0] == results[1]


def test_recording_changes_nothing_else(tmp_path: Path) -> None:
    given = {
        "training.iterations": 5,
        "inference.samples": 3,
        "benchmark": "split-digits",
        "method": "pr-bbb",
        "network": "mlp-10",
        "report.references": False,
        "inference.test_inputs": 20,
    }
    plain, watched = (build_config(given, extra, "test") for extra in ({}, {"training.record_signals": True}))
    actual = [
        Run(Plan.of(config, tmp_path / name)).execute() for name, config in (("plain", plain), ("watched", watched))
    ]
    assert actual[0].tgiven_matrix == actual[1].tgiven_matrix
    assert not (tmp_path / "plain" / "signals").exists()
    with pytest.raises(DataError, match="record_signals"):
        read_signals(tmp_path / "plain")
