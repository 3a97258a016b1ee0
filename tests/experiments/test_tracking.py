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

SAVED = {"training.checkpoint_every": 1}
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
    assert (figures.test_inputs, figures.test_every) == (20, 2)
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


def test_the_time_of_a_task_includes_what_came_before_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step takes a second here; those before the kill count, up to the checkpoint."""
    clock = [0.0]

    def tick() -> bool:
        clock[0] += 1.0
        return False

    monkeypatch.setattr("metareplay.experiments.run.time.perf_counter", lambda: clock[0])
    whole = Run(plan_of(tmp_path / "whole", **SAVED), should_stop=tick).execute()
    left = iter([False] * 3)
    with pytest.raises(Interrupted):
        Run(plan_of(tmp_path / "part", **SAVED), should_stop=lambda: tick() or next(left, True)).execute()
    clock[0] += 100.0  # nothing runs
    again = Run(plan_of(tmp_path / "part", **SAVED), should_stop=tick).execute(resume=True)
    assert whole.seconds is not None
    assert again.seconds is not None
    assert again.seconds.by_task[0] == whole.seconds.by_task[0] - 1 == 4  # less what came after the checkpoint


def test_figures_at_the_end_are_those_after_fine_tuning(tmp_path: Path) -> None:
    results = Run(plan_of(tmp_path, "pr-dirac-cs", strategy__finetune_iterations=30, **TRACKED)).execute()
    figures = results.continual
    assert figures is not None
    assert figures.inferred_fine_tuned is not None
    matrix, end = figures.inferred_matrix, figures.inferred_fine_tuned
    assert [len(row) for row in matrix] == [1, 2, 3]
    assert len(end) == 3
    assert end != matrix[-1]
    learned = [matrix[task][task] for task in range(3)]
    assert figures.forgetting_inferred == pytest.approx(sum(learned) / 3 - sum(end) / 3)
    changes = [end[task] - learned[task] for task in range(2)]
    assert figures.backward_transfer_inferred == pytest.approx(sum(changes) / 2)


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


def test_what_a_method_keeps_is_counted(tmp_path: Path) -> None:
    """Ten examples of two numbers and a label, and two counters; nothing where posteriors are replayed."""
    quiet = Run(plan_of(tmp_path / "quiet")).execute().parameters
    keeps = Run(plan_of(tmp_path / "keeps", "er", strategy__memory_size=10)).execute().parameters
    assert quiet is not None
    assert keeps is not None
    assert quiet.kept == 0
    assert keeps.kept == 10 * (2 + 1) + 2
