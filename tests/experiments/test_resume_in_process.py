"""A run that is stopped anywhere and resumed ends as if nothing had happened: every method, many moments."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from metareplay import ContinualClassifier
from metareplay.benchmarks.base import Task
from metareplay.benchmarks.images import permute_images
from metareplay.data.sources import load_digits
from metareplay.errors import CheckpointError
from metareplay.experiments.plan import Plan
from metareplay.experiments.results import read_results
from metareplay.experiments.run import Run
from metareplay.interrupts import Interrupted
from metareplay.learner.config import RunConfig, build_config
from metareplay.learner.methods import METHODS
from metareplay.learner.store import load_model
from metareplay.settings import flatten
from metareplay.training.checkpoint import CheckpointFolder
from metareplay.training.loop import Step
from metareplay.training.progress import NullObserver, Stage

pytestmark = pytest.mark.usefixtures("small_maps")
STEPS = 24  # three tasks of eight
TUNING = 8  # steps of fine-tuning on coresets
CHECKPOINTS = 9  # two within each task, one after it
BRIEF: dict[str, Any] = {"statistics.collect": False, "inference.test_inputs": 20}
"""Where what differs is how tasks are learned: with statistics, runs are stopped below and in tests/inference/."""


class Killed(BaseException):
    """The process is gone: nothing may be tidied up."""


class Counter(NullObserver):
    """Counts steps over all tasks, and hears what the run says; meanwhile it draws from every global generator."""

    def __init__(self) -> None:
        self.steps = 0
        self.messages: list[str] = []
        self.begun: list[tuple[int, int]] = []

    def step(self, step: Step) -> None:
        self.steps += 1
        np.random.rand(3)
        torch.default_generator.manual_seed(int(torch.randint(1000, (1,))))  # in a fraction of torch.manual_seed's time

    def message(self, text: str) -> None:
        self.messages.append(text)

    def stage_begins(self, stage: Stage, iteration: int, iterations: int) -> None:
        self.begun.append((stage.number, iteration))


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory, tiny_config: Callable[..., RunConfig]) -> Path:
    """An uninterrupted run of pr-bbb, to compare with."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    Run(Plan.of(tiny_config("pr-bbb"), folder)).execute()
    return folder


def stop_after(config: RunConfig, folder: Path, steps: int, *, resume: bool) -> None:
    counter = Counter()
    run = Run(Plan.of(config, folder), observer=counter, should_stop=lambda: counter.steps >= steps)
    with pytest.raises(Interrupted, match="--resume"):
        run.execute(resume=resume)
    assert counter.steps == steps


def stop_at_each(config: RunConfig, folder: Path, moments: Sequence[int]) -> None:
    """Stop repeatedly, after these numbers of steps of the whole run, then finish."""
    for before, after in pairwise((0, *moments)):
        stop_after(config, folder, after - before, resume=before > 0)
    counter = Counter()
    Run(Plan.of(config, folder), observer=counter).execute(resume=True)
    assert counter.steps == STEPS + TUNING * (config.kind().strategy == "coreset-replay") - moments[-1]


def test_an_interrupted_run_leaves_a_model_of_its_finished_tasks(
    tmp_path: Path, tiny_config: Callable[..., RunConfig], finished_run: Path
) -> None:
    config = tiny_config("pr-bbb")
    stop_after(config, tmp_path, 5, resume=False)
    with pytest.raises(CheckpointError, match="has not finished its first task; continue it with --resume"):
        load_model(tmp_path)
    stop_after(config, tmp_path, 15, resume=True)  # in the third task
    model, test = ContinualClassifier.load(tmp_path), Plan.of(config, tmp_path).benchmark[1].test
    assert len(model.tasks) == 2
    row = read_results(finished_run / "results.json").tgiven_matrix[1]  # as tested after the second task
    labels = [model.tasks[1].classes[index] for index in test.y]
    assert 100 * model.score(test.x, labels, task=1) == pytest.approx(row[1])


CHANGING_RATES: dict[str, Any] = {
    "training.batch_size": 8,  # three steps an epoch
    "training.rate_steps": [[1, 0.5], [2, 0.1]],
    "training.plateau_patience": 1,
    "training.plateau_factor": 0.01,
    "training.autocast": True,
}


def test_a_changing_learning_rate_resumes_exactly(
    tmp_path: Path, tiny_config: Callable[..., RunConfig], assert_same_run: Callable[[Path, Path], None]
) -> None:
    config = tiny_config("pr-dirac", {**BRIEF, **CHANGING_RATES})
    Run(Plan.of(config, tmp_path / "whole")).execute()
    stop_at_each(config, tmp_path / "broken", (1, 2, 4, 7, 8, 11, 20))
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.parametrize(
    "training",
    [
        {**BRIEF, "training.augmentation": "none"},
        {**BRIEF, "training.augmentation": "crop-flip"},
        {"training.augmentation": "crop-flip", "training.rotations": True, "training.other": 0.5},
    ],
    ids=["plain", "crop-flip", "auxiliary outputs"],
)
def test_images_resume_exactly(
    training: dict[str, Any],
    tmp_path: Path,
    tiny_config: Callable[..., RunConfig],
    assert_same_run: Callable[[Path, Path], None],
) -> None:
    """Two tasks of permuted digits, tested on a few inputs: nothing of a finished task is made again."""
    settings = {**training, "inference.test_inputs": 20, "tasks.scenario": "class"}
    config = tiny_config("sp-dirac", settings, "split-digits")
    made: list[int] = []
    digits = permute_images("split-digits", load_digits(), 2, seed=0)

    def make_task(index: int) -> Task:
        made.append(index)
        return digits[index]

    benchmark = replace(digits, make_task=make_task)
    Run(Plan.of(config, tmp_path / "whole", benchmark=benchmark)).execute()
    assert made == [0, 1]
    for steps in (3, 6):  # in the middle of each task
        counter = Counter()
        run = Run(
            Plan.of(config, tmp_path / "broken", benchmark=benchmark),
            observer=counter,
            should_stop=lambda: counter.steps >= steps,  # noqa: B023
        )
        with pytest.raises(Interrupted):
            run.execute(resume=steps > 3)
    Run(Plan.of(config, tmp_path / "broken", benchmark=benchmark)).execute(resume=True)
    assert made == [0, 1, 0, 0, 1, 1]
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.representative  # every method: tests/conformance/test_every_method.py, without the files of a run
@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if not method.closed_form])
def test_every_method_is_repeated_from_its_stored_settings_and_resumes_exactly(
    method: str, tmp_path: Path, tiny_config: Callable[..., RunConfig], assert_same_run: Callable[[Path, Path], None]
) -> None:
    fine_tuned = METHODS[method].strategy == "coreset-replay"
    config = tiny_config(method, {} if fine_tuned else BRIEF)
    Run(Plan.of(config, tmp_path / "whole")).execute()
    # before its first step, within it, after its last
    tuning = (24, 30, 32) if fine_tuned else ()
    stored = build_config({}, flatten(yaml.safe_load((tmp_path / "whole" / "config.yaml").read_text())), "stored")
    assert stored == config
    stop_at_each(stored, tmp_path / "broken", (2, 8, 21, *tuning))
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.parametrize("method", ["pr-bbb", "pr-dirac", "pf-ssge", "pf-avb"])
def test_regression_resumes_exactly(
    method: str, tmp_path: Path, tiny_config: Callable[..., RunConfig], assert_same_run: Callable[[Path, Path], None]
) -> None:
    config = tiny_config(method, {} if method == "pr-bbb" else BRIEF, "regression-1d")
    Run(Plan.of(config, tmp_path / "whole")).execute()
    stop_at_each(config, tmp_path / "broken", (8, 13))
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


PENALTIES: dict[str, dict[str, Any]] = {
    "mse": {"strategy.penalty": "mse"},
    "fkl, recomputed, random tasks": {
        "strategy.penalty": "fkl",
        "strategy.targets": "recomputed",
        "strategy.old_tasks": 1,
    },
    "rkl, epochs": {"strategy.penalty": "rkl", "training.epochs": 8, "training.iterations": None},
    "weight samples": {
        "posterior.local_reparametrisation": False,
        "hypernet.kind": "chunked",
        "hypernet.chunk_size": 50,
    },
    "embeddings per task": {
        "hypernet.kind": "chunked",
        "hypernet.chunk_size": 40,
        "hypernet.chunk_embeddings_per_task": True,
    },
    "hyperfan": {"hypernet.initialisation": "hyperfan", "hypernet.activation": "relu"},
    "single head": {"heads": "single"},
    "chunks chosen, then grown": {"hypernet.kind": "chunked"},
    "a mixture as prior, tempered": {
        "strategy.prior_from_earlier": 0.3,
        "posterior.prior_power": 0.5,
        "strategy.strength": 0.0,
    },
    "embeddings per task, grown": {"hypernet.kind": "chunked", "hypernet.chunk_embeddings_per_task": True},
}


@pytest.mark.parametrize("settings", PENALTIES.values(), ids=PENALTIES)
def test_settings_that_keep_more_state_resume_exactly(
    settings: dict[str, Any],
    tmp_path: Path,
    tiny_config: Callable[..., RunConfig],
    assert_same_run: Callable[[Path, Path], None],
) -> None:
    config = tiny_config("pr-bbb", {**BRIEF, **settings})
    Run(Plan.of(config, tmp_path / "whole")).execute()
    stop_at_each(config, tmp_path / "broken", (3, 20))
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.parametrize("method", ["pr-bbb", "pr-dirac", "pr-radial-sr", "pr-ssge"])
def test_the_fisher_penalty_resumes_exactly(
    method: str, tmp_path: Path, tiny_config: Callable[..., RunConfig], assert_same_run: Callable[[Path, Path], None]
) -> None:
    config = tiny_config(method, {**BRIEF, "strategy.penalty": "fisher", "strategy.age_discount": 0.5})
    Run(Plan.of(config, tmp_path / "whole")).execute()
    # also between the last step of a task and what is taken from it
    stop_at_each(config, tmp_path / "broken", (3, 16, 20))
    assert_same_run(tmp_path / "whole", tmp_path / "broken")
    memories = [load_model(folder).learner.strategy.state() for folder in (tmp_path / "whole", tmp_path / "broken")]
    assert memories[0].keys() == memories[1].keys() == (set() if method == "pr-bbb" else {"information"})
    assert all(torch.equal(tensor, memories[1][name]) for name, tensor in memories[0].items())


def test_a_stop_after_any_step_is_exact(
    tmp_path: Path, tiny_config: Callable[..., RunConfig], assert_same_run: Callable[[Path, Path], None]
) -> None:
    config = tiny_config("pr-dirac-sr")
    Run(Plan.of(config, tmp_path / "whole")).execute()
    stop_at_each(config, tmp_path / "broken", range(1, STEPS + 1))
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_death_beside_any_checkpoint_is_exact(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny_config: Callable[..., RunConfig],
    assert_same_run: Callable[[Path, Path], None],
    finished_run: Path,
) -> None:
    """One run that dies before and after each of its checkpoints is written."""
    write, config = CheckpointFolder.write, tiny_config("pr-bbb")
    for number in range(1, CHECKPOINTS + 1):
        for written in (False, True):

            def die(folder: CheckpointFolder, serial: int, *arguments: Any) -> None:
                assert serial == number  # noqa: B023
                if written:  # noqa: B023
                    write(folder, serial, *arguments)
                raise Killed

            with monkeypatch.context() as patch:
                patch.setattr(CheckpointFolder, "write", die)
                with pytest.raises(Killed):
                    Run(Plan.of(config, tmp_path / "broken")).execute(resume=(number, written) != (1, False))
    Run(Plan.of(config, tmp_path / "broken")).execute(resume=True)
    assert_same_run(finished_run, tmp_path / "broken")


QUICK = [("deleted", 8), ("truncated", 14), ("flipped", 7)]


@pytest.mark.parametrize(
    ("damage", "stop"),
    [
        pytest.param(damage, stop, marks=[] if (damage, stop) in QUICK else pytest.mark.slow)
        for damage in ("deleted", "truncated", "flipped")
        for stop in (7, 8, 14)
    ],
)
def test_the_previous_checkpoint_serves_when_the_newest_is_gone(
    damage: str,
    stop: int,
    tmp_path: Path,
    tiny_config: Callable[..., RunConfig],
    assert_same_run: Callable[[Path, Path], None],
    finished_run: Path,
) -> None:
    config, folder = tiny_config("pr-bbb"), tmp_path / "broken"
    stop_after(config, folder, stop, resume=False)
    newest = max((folder / "checkpoint").iterdir())
    content = newest.read_bytes()
    if damage == "deleted":
        newest.unlink()
    else:
        newest.write_bytes(content[:-10] if damage == "truncated" else content[:-1] + bytes([content[-1] ^ 1]))
    counter = Counter()
    Run(Plan.of(config, folder), observer=counter).execute(resume=True)
    skipped = [text for text in counter.messages if text.startswith("skipped")]
    assert len(skipped) == (damage != "deleted")
    assert all(newest.name in text for text in skipped)
    assert_same_run(finished_run, folder)


def test_a_run_whose_checkpoints_are_all_damaged_is_refused(
    tmp_path: Path, tiny_config: Callable[..., RunConfig]
) -> None:
    config = tiny_config()
    stop_after(config, tmp_path / "run", 8, resume=False)
    for path in (tmp_path / "run" / "checkpoint").iterdir():
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="no usable checkpoint"):
        Run(Plan.of(config, tmp_path / "run")).execute(resume=True)


def test_another_configuration_is_not_continued(tmp_path: Path, tiny_config: Callable[..., RunConfig]) -> None:
    stop_after(tiny_config(), tmp_path / "run", 8, resume=False)
    with pytest.raises(CheckpointError, match="another configuration"):
        Run(Plan.of(tiny_config(settings={"training.learning_rate": 0.5}), tmp_path / "run")).execute(resume=True)


def test_resuming_starts_where_the_checkpoint_is(tmp_path: Path, tiny_config: Callable[..., RunConfig]) -> None:
    config, counter = tiny_config(), Counter()
    stop_after(config, tmp_path / "run", 13, resume=False)
    Run(Plan.of(config, tmp_path / "run"), observer=counter).execute(resume=True)
    assert counter.begun == [(1, 5), (2, 0)]
    assert any("resumed from checkpoint" in text for text in counter.messages)


def test_resuming_without_a_checkpoint_starts_from_the_beginning(
    tmp_path: Path,
    tiny_config: Callable[..., RunConfig],
    assert_same_run: Callable[[Path, Path], None],
    finished_run: Path,
) -> None:
    Run(Plan.of(tiny_config("pr-bbb"), tmp_path / "run")).execute(resume=True)
    assert_same_run(finished_run, tmp_path / "run")
