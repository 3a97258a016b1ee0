"""Fine-tuning on coresets as a stage of a run: order, figures, metrics, results, and stopping in its midst."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from metareplay.estimators import ContinualClassifier, ContinualRegressor
from metareplay.experiments.plan import Plan
from metareplay.experiments.run import Run
from metareplay.interrupts import Interrupted
from metareplay.learner.config import RunConfig
from metareplay.report.page import write_report
from metareplay.training.progress import NullObserver, Stage

pytestmark = pytest.mark.usefixtures("small_maps")


class Watcher(NullObserver):
    """Records the events of a run."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, str, int, int]] = []
        self.ended: list[tuple[int, int]] = []

    def stage_begins(self, stage: Stage, iteration: int, iterations: int) -> None:
        self.begun.append((stage.number, stage.name, iteration, iterations))

    def stage_ends(self, stage: Stage, scores: Sequence[float]) -> None:
        self.ended.append((stage.number, len(scores)))


SETTINGS = {
    "training.iterations": 60,
    "training.log_every": 20,
    "strategy.finetune_iterations": 40,
    "training.checkpoint_every": 25,
    "hypernet.hidden": [10, 10],
}


@pytest.fixture(scope="module")
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, tiny_config: Callable[..., RunConfig], watcher: Watcher) -> Path:
    folder = tmp_path_factory.mktemp("tuned") / "run"
    Run(Plan.of(tiny_config("pr-bbb-cs", SETTINGS), folder), observer=watcher).execute()
    return folder


def results_of(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return result


def test_the_stage_follows_the_last_task(tuned: Path, watcher: Watcher) -> None:
    assert watcher.begun[-1] == (3, "coresets of all tasks", 0, 40)
    assert [task for task, *_ in watcher.begun] == [0, 1, 2, 3]
    assert watcher.ended == [(0, 1), (1, 2), (2, 3), (3, 3)]
    lines = [json.loads(line) for line in (tuned / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines if line["task"] == 3 and "event" not in line] == [1, 20, 40]
    assert lines[-1] == {"event": "fine-tuning", "task": 3, "tgiven": results_of(tuned)["tgiven_fine_tuned"]}


def test_final_figures_are_those_after_fine_tuning(tuned: Path) -> None:
    result = results_of(tuned)
    matrix, row = result["tgiven_matrix"], result["tgiven_fine_tuned"]
    assert [len(each) for each in matrix] == [1, 2, 3]
    assert len(row) == 3
    assert result["tgiven_final"] == pytest.approx(sum(row) / 3)
    assert result["tgiven_during"] == pytest.approx(sum(matrix[task][task] for task in range(3)) / 3)
    assert result["backward_transfer"] == pytest.approx(sum(row[task] - matrix[task][task] for task in range(2)) / 2)
    before = result["before_fine_tuning"]
    assert before["tgiven_final"] == pytest.approx(sum(matrix[-1]) / 3)
    assert before["tinfer_final"]["ent"] != result["tinfer_final"]["ent"]


def test_the_stored_model_is_the_fine_tuned_one(tuned: Path, tiny_config: Callable[..., RunConfig]) -> None:
    from metareplay.benchmarks.toy import modes_2d

    model, result = ContinualClassifier.load(tuned), results_of(tuned)
    for index, task in enumerate(modes_2d()):
        labels = [task.classes[label] for label in task.test.y.tolist()]
        assert 100 * model.score(task.test.x, labels, task=index) == pytest.approx(result["tgiven_fine_tuned"][index])
    with pytest.raises(Exception, match="counts their evidence twice"):
        model.fine_tune()


def test_other_methods_have_no_such_stage(tmp_path: Path, tiny_config: Callable[..., RunConfig]) -> None:
    result = Run(Plan.of(tiny_config("pr-bbb"), tmp_path / "run")).execute()
    assert (result.tgiven_fine_tuned, result.before_fine_tuning) == (None, None)


def test_regression_is_fine_tuned_too(tmp_path: Path, tiny_config: Callable[..., RunConfig]) -> None:
    result = Run(Plan.of(tiny_config("pr-bbb-cs", benchmark="regression-1d"), tmp_path / "run")).execute()
    assert result.mse.tgiven_final == pytest.approx(sum(result.tgiven_fine_tuned) / 3)
    assert result.before_fine_tuning.mse.tgiven_final == pytest.approx(sum(result.tgiven_matrix[-1]) / 3)
    assert len(ContinualRegressor.load(tmp_path / "run").task_names) == 3


RANDOM = {"strategy.finetune_others": "random", "strategy.finetune_own_share": 0.4, "strategy.finetune_batch_size": 6}


@pytest.mark.parametrize("settings", [RANDOM, {"strategy.targets": "recomputed", "strategy.finetune_others": "none"}])
def test_a_run_stopped_in_the_stage_ends_the_same(
    settings: dict[str, Any],
    tmp_path: Path,
    tiny_config: Callable[..., RunConfig],
    assert_same_run: Callable[[Path, Path], None],
) -> None:
    config = tiny_config("pr-bbb-cs", settings)  # three tasks of eight steps, then eight of fine-tuning
    Run(Plan.of(config, tmp_path / "whole")).execute()
    steps, moments = 0, (24, 25, 27, 31, 32)  # before its first step, within it, after its last

    class Count(NullObserver):
        def step(self, step: object) -> None:
            nonlocal steps
            steps += 1

    for moment in moments:
        plan, should_stop = Plan.of(config, tmp_path / "broken"), lambda stop=moment: steps >= stop
        with pytest.raises(Interrupted):
            Run(plan, observer=Count(), should_stop=should_stop).execute(resume=moment != moments[0])
    Run(Plan.of(config, tmp_path / "broken")).execute(resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_a_run_killed_after_the_stage_is_not_tuned_again(
    tmp_path: Path,
    tiny_config: Callable[..., RunConfig],
    assert_same_run: Callable[[Path, Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = tiny_config("pr-bbb-cs")
    Run(Plan.of(config, tmp_path / "whole")).execute()

    def die(run: Run, tests: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_finish", die)
        with pytest.raises(KeyboardInterrupt):
            Run(Plan.of(config, tmp_path / "broken")).execute()
    watcher = Watcher()
    Run(Plan.of(config, tmp_path / "broken"), observer=watcher).execute(resume=True)
    assert watcher.begun == []
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_the_report_shows_what_the_run_ended_with(tuned: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_report([tuned], page)
    text = page.read_text()
    assert "After fine-tuning, %" in text
    assert "Before it: TGiven-Final" in text
    shown = f"{results_of(tuned)['tgiven_final']:.2f}"
    assert shown in text
