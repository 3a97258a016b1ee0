"""What a run measures while tasks are learned: it is complete, survives a restart, and changes nothing else."""

from pathlib import Path

import pytest
import torch

from metareplay.errors import ConfigError
from metareplay.experiments.plan import Plan
from metareplay.experiments.results import Results, read_results
from metareplay.experiments.run import Run
from metareplay.interrupts import Interrupted
from metareplay.learner.config import build_config
from metareplay.learner.recipe_book import default_settings

TRACKED = {"report.test_during": 20, "report.test_every": 2}


def plan_of(folder: Path, method: str = "pr-dirac", **given: object) -> Plan:
    settings = {
        "training.iterations": 5,
        "inference.samples": 3,
        "statistics.collect": False,
        "report.references": False,
        **{key.replace("__", "."): value for key, value in given.items()},
    }
    return Plan.of(build_config(default_settings("modes-2d", method, "mlp-10-10")[0], settings, "test"), folder)


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    folder = tmp_path_factory.mktemp("tracked")
    return Run(plan_of(folder, **TRACKED)).execute(), folder


def test_everything_is_measured(tracked: tuple[Results, Path]) -> None:
    results, folder = tracked
    figures = read_results(folder / "results.json").continual
    assert figures is not None
    assert figures == results.continual
    assert [(entry.task, entry.step, len(entry.scores)) for entry in figures.during] == [
        *((1, step, 1) for step in (0, 2, 4, 5)),
        *((2, step, 2) for step in (0, 2, 4, 5)),
    ]
    assert [len(row) for row in figures.inferred_matrix] == [1, 2, 3]
    for value in (figures.forward_transfer, figures.minimum_accuracy, figures.stability_gap):
        assert value is not None
    assert len(figures.nll_by_task) == len(figures.calibration_error_by_task) == 3
    assert results.seconds is not None
    assert len(results.seconds.by_task) == 3
    assert figures.model_bytes == sorted(figures.model_bytes)
    assert figures.model_bytes[-1] == (folder / "model" / "model.safetensors").stat().st_size


def test_it_changes_nothing_else(tracked: tuple[Results, Path], tmp_path: Path) -> None:
    plain = Run(plan_of(tmp_path)).execute()
    assert plain.tgiven_matrix == tracked[0].tgiven_matrix
    assert plain.tinfer_final == tracked[0].tinfer_final
    assert plain.continual is not None
    assert plain.continual.average_incremental is not None
    assert plain.continual.during == []
    assert plain.continual.forward_transfer is None


@pytest.mark.parametrize("steps", [3, 8])
def test_what_was_tracked_survives_a_restart(tracked: tuple[Results, Path], steps: int, tmp_path: Path) -> None:
    left = iter([False] * steps)
    with pytest.raises(Interrupted):
        Run(plan_of(tmp_path, **TRACKED), should_stop=lambda: next(left, True)).execute()
    again = Run(plan_of(tmp_path, **TRACKED)).execute(resume=True)
    assert again.continual == tracked[0].continual
    assert again.seconds is not None
    assert len(again.seconds.by_task) == 3


def test_intransigence_against_a_joint_run(tmp_path: Path) -> None:
    joint = Run(plan_of(tmp_path / "joint", "joint")).execute()
    figures = Run(plan_of(tmp_path / "own", report__joint=str(tmp_path / "joint"))).execute()
    assert joint.tgiven_final is not None
    assert figures.tgiven_during is not None
    assert figures.continual is not None
    assert figures.continual.intransigence == pytest.approx(joint.tgiven_final - figures.tgiven_during)
    assert figures.continual.joint == "joint, mlp-10-10"


def test_one_softmax_is_tracked_too(tmp_path: Path) -> None:
    figures = Run(plan_of(tmp_path, "fine-tuning", **TRACKED)).execute().continual
    assert figures is not None
    growing = Run(plan_of(tmp_path / "growing", "ewc-growing", **TRACKED)).execute()
    assert growing.continual is not None
    assert growing.tinfer_final is not None
    assert len(growing.continual.inferred_matrix) == 3
    assert torch.tensor(growing.continual.inferred_matrix[-1]).isfinite().all()


def test_a_cadence_needs_inputs() -> None:
    with pytest.raises(ConfigError, match="test_during"):
        build_config({}, {"report.test_every": 5}, "test")
