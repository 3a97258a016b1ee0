"""A study: who takes which trial, what is pruned or fails, and that an interrupted study goes on as it would have."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from metareplay.errors import ConfigError
from metareplay.experiments.plan import make_plan
from metareplay.experiments.tuning import worker
from metareplay.experiments.tuning.definition import Definition
from metareplay.experiments.tuning.samplers import grid_point
from metareplay.experiments.tuning.space import Range, Values
from metareplay.experiments.tuning.study import Study
from metareplay.experiments.tuning.summary import write_recipe, write_summary
from metareplay.experiments.tuning.worker import Pruned, Watch, work
from metareplay.interrupts import Interrupted
from metareplay.learner.config import RunConfig
from metareplay.training.progress import Stage

pytest.importorskip("optuna")
SPACE = {
    "training.learning_rate": Range(low=1e-4, high=1e-1, log=True),
    "training.batch_size": Values(values=(4, 8, 128)),
}
RATE = {"training.learning_rate": Values(values=(0.01,))}
TINY = {"training.iterations": 2, "tasks.validation": 0.2}


@pytest.fixture
def define(tiny_config: Callable[..., RunConfig]) -> Callable[..., Definition]:
    def make(method: str = "sp-dirac", settings: Any = None, **changes: Any) -> Definition:
        content = {
            "base": tiny_config(method, {**TINY, **(settings or {})}).dump(),
            "source": "here",
            "space_source": "a space of this test",
            "space": SPACE,
            "problem": "classification",
            "tasks": 3,
            "objective": "inferred",
            "sampler": "tpe",
            "prune": True,
            "seed": 3,
        }
        return Definition(**{**content, **changes})

    return make


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Trials are not run: what they reach is a function of the learning rate. Returns the settings of each."""
    seen: list[dict[str, Any]] = []

    class Reached:
        def __init__(self, value: float) -> None:
            self.value = value

    def results(study: Study, trial: Any, place: Path, over: Any) -> Reached:
        values = study.values(trial)
        seen.append(values)
        if over():
            raise Interrupted("stopped")
        if values["training.batch_size"] == 4:
            raise ConfigError("4 cannot be used")
        return Reached(100 - 1000 * abs(values["training.learning_rate"] - 0.01))

    monkeypatch.setattr(worker, "_results", results)
    monkeypatch.setattr(Definition, "value", lambda self, results: results.value)
    return seen


def told(folder: Path) -> list[Any]:
    return [record._replace(seconds=None) for record in Study(folder).records()]


def test_an_interrupted_study_goes_on_as_it_would_have(
    tmp_path: Path, define: Callable[..., Definition], quick: list[Any]
) -> None:
    Study.make(tmp_path / "whole", define())
    work(tmp_path / "whole", 14)
    Study.make(tmp_path / "parts", define())
    work(tmp_path / "parts", 5)
    with pytest.raises(Interrupted):  # in its sixth trial
        work(tmp_path / "parts", 14, should_stop=iter([False, True]).__next__)
    assert told(tmp_path / "parts")[-1].state == "running"
    work(tmp_path / "parts", 14)
    assert told(tmp_path / "parts") == told(tmp_path / "whole")
    assert {record.state for record in told(tmp_path / "whole")} == {"finished", "failed"}
    assert len({str(record.settings) for record in told(tmp_path / "whole")}) == 14
    work(tmp_path / "whole", 14)  # there is nothing left to do
    assert len(told(tmp_path / "whole")) == 14


def test_nobody_takes_a_trial_that_somebody_works_on(tmp_path: Path, define: Callable[..., Definition]) -> None:
    one, two = Study.make(tmp_path, define()), Study(tmp_path)
    with one.claimed(5) as first:
        assert first is not None
        chosen = one.values(first)
        with two.claimed(5) as second:
            assert second is not None
            assert (first.number, second.number) == (0, 1)
    with two.claimed(5) as again:  # both workers are gone without a word
        assert again is not None
        assert again.number == 0
        assert two.values(again) == chosen
    with two.claimed(2) as last:
        assert last is not None  # left behind, not a third


def report(study: Study, means: Sequence[float], *, tasks: int = 4) -> None:
    """A trial whose tasks have these means."""
    with study.claimed(99) as trial:
        assert trial is not None
        for number, mean in enumerate(means):
            Watch(trial).stage_ends(Stage(number, tasks, "a"), [mean])
        study.study.tell(trial, 80.0)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_trial_among_the_worst_quarter_is_pruned_in_the_second_half_of_the_tasks(
    tmp_path: Path, define: Callable[..., Definition], sign: int
) -> None:
    problem = "classification" if sign > 0 else "regression"
    study = Study.make(tmp_path, define(tasks=4, problem=problem))
    for reached in (80.0, 81.0, 82.0, 83.0, 84.0):
        report(study, [sign * 90.0, sign * 90.0, sign * reached, sign * reached])
    report(study, [sign * 10.0, sign * 10.0, sign * 82.0, sign * 1.0])  # a bad start, and a bad end: nothing to save
    with pytest.raises(Pruned, match="after task 2"):  # the best start does not help
        report(study, [sign * 99.0, sign * 99.0, sign * 80.5])
    assert [record.state for record in study.records()][:6] == ["finished"] * 6


def test_two_tasks_and_few_trials_prune_nothing(tmp_path: Path, define: Callable[..., Definition]) -> None:
    two = Study.make(tmp_path / "two", define(tasks=2))
    for _ in range(6):
        report(two, [90.0, 90.0], tasks=2)
    report(two, [1.0, 1.0], tasks=2)
    few = Study.make(tmp_path / "few", define(tasks=4))
    for _ in range(4):
        report(few, [90.0] * 4)
    report(few, [1.0] * 4)
    free = Study.make(tmp_path / "free", define(tasks=4, prune=False))
    for _ in range(5):
        report(free, [90.0] * 4)
    report(free, [1.0] * 4)


def test_the_first_trial_has_the_settings_at_the_start_if_the_space_contains_them(
    tmp_path: Path, define: Callable[..., Definition], quick: list[Any]
) -> None:
    Study.make(tmp_path / "in", define(settings={"training.learning_rate": 0.003, "training.batch_size": 8}))
    work(tmp_path / "in", 1)
    assert quick.pop() == {"training.learning_rate": 0.003, "training.batch_size": 8}
    assert Study(tmp_path / "in").records()[0].recipe
    Study.make(tmp_path / "out", define(settings={"training.batch_size": 9}))
    work(tmp_path / "out", 1)
    assert not Study(tmp_path / "out").records()[0].recipe


def test_settings_that_come_twice_are_run_once(
    tmp_path: Path, define: Callable[..., Definition], quick: list[Any]
) -> None:
    Study.make(tmp_path, define(space={"training.batch_size": Values(values=(8, 128)), **RATE}))
    work(tmp_path, 8)
    assert sorted(values["training.batch_size"] for values in quick) == [8, 128]
    records = Study(tmp_path).records()
    assert [record.state for record in records] == ["finished"] * 8
    assert {record.value for record in records} == {100.0}


def test_a_grid_has_every_point_once_and_then_ends(
    tmp_path: Path, define: Callable[..., Definition], quick: list[Any]
) -> None:
    space = {"training.learning_rate": Values(values=(0.01, 0.1)), "training.batch_size": Values(values=(8, 16, 128))}
    definition = define(sampler="grid", space=space, settings={"training.batch_size": 9})
    assert len({str(grid_point(definition, number)) for number in range(6)}) == 6
    Study.make(tmp_path, definition)
    work(tmp_path, 100)
    assert len(quick) == 6
    assert len({str(values) for values in quick}) == 6


def test_another_definition_is_refused(tmp_path: Path, define: Callable[..., Definition]) -> None:
    Study.make(tmp_path / "study", define())
    with pytest.raises(ConfigError, match=r"holds another study: its objective is inferred, not given"):
        Study.make(tmp_path / "study", define(objective="given"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("precious")
    with pytest.raises(ConfigError, match="holds no study"):
        Study.make(tmp_path / "other", define())


def test_real_trials_are_tested_on_held_out_examples_and_make_a_recipe(
    tmp_path: Path, define: Callable[..., Definition], small_maps: None
) -> None:
    study = Study.make(tmp_path / "study", define("sp-dirac"))
    work(tmp_path / "study", 2)
    best = study.best()
    assert best is not None
    content = write_summary(study)
    assert content["best"] == best.number
    assert "20 % of each task's training examples held out" in content["protocol"]
    assert not content["test_set"]
    assert not (study.place(0) / "run" / "model").exists()
    file = write_recipe(study, tmp_path / "recipe.yaml")
    assert "the test set unused" in file.read_text()
    plan = make_plan({}, file=file, out=tmp_path / "run")
    assert plan.config.training.learning_rate == best.settings["training.learning_rate"]
    assert (plan.config.tasks.validation, plan.config.tasks.first, plan.config.seed) == (0.0, None, 0)


@pytest.mark.slow
def test_a_study_whose_worker_is_killed_is_finished_by_others_with_the_same_figures(
    tmp_path: Path, define: Callable[..., Definition]
) -> None:
    longer = {"training.iterations": 400, "training.checkpoint_every": 50}
    for name in ("whole", "killed"):
        Study.make(tmp_path / name, define("pr-dirac", longer))
    command = [sys.executable, "-m", "metareplay.experiments.tuning.worker"]
    subprocess.run([*command, str(tmp_path / "whole"), "3"], check=True)
    victim = subprocess.Popen([*command, str(tmp_path / "killed"), "3"])
    checkpoints = tmp_path / "killed" / "trials" / "0001" / "run" / "checkpoint"
    while not (checkpoints.is_dir() and any(checkpoints.glob("*.safetensors"))):  # not one that is being written
        assert victim.poll() is None
        time.sleep(0.05)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    assert told(tmp_path / "killed")[1].state == "running"
    both = [subprocess.Popen([*command, str(tmp_path / "killed"), "3"]) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    whole, killed = (told(tmp_path / name) for name in ("whole", "killed"))
    assert killed[:2] == whole[:2]  # the third was chosen while the second was under way
    assert "resumed from checkpoint" in (tmp_path / "killed" / "trials" / "0001" / "run" / "log.txt").read_text()
