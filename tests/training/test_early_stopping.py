"""Early stopping on held-out examples: when a task ends, how smoothly, and the same after a restart."""

from itertools import pairwise
from typing import Any

import pytest
import torch

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.seeding import generator_for
from metareplay.training.early_stopping import EarlyStopping
from metareplay.training.loop import TaskTrainer

SETTINGS: dict[str, Any] = {
    "method": "pr-bbb",
    "network": "mlp-5",
    "training.iterations": 400,
    "training.batch_size": 20,
    "training.learning_rate": 0.02,
    "training.cosine": True,
    "training.early_stopping": 10,
    "training.patience": 2,
    "hypernet.hidden": [6],
    "hypernet.chunk_size": 7,
}


def trainer_of(rows: int = 220, **changes: Any) -> tuple[ContinualLearner, TaskTrainer, TaskData]:
    config = build_config({}, {**SETTINGS, **{key.replace("__", "."): value for key, value in changes.items()}}, "test")
    learner = ContinualLearner(config, "classification", Scenario.CLASS, (2,))
    generator, y = generator_for(0, "blobs"), torch.arange(rows) % 2
    data = TaskData(torch.randn(rows, 2, generator=generator) + y.unsqueeze(1), y)
    return learner, learner.begin_task(data, 2), data


def test_the_end_begins_when_several_checks_bring_nothing_better() -> None:
    stopping = EarlyStopping(10, 3, 1000)
    for check, loss in enumerate([1.0, 0.5, 0.499, 0.6, 0.51], 1):
        assert stopping.due(10 * check)
        stopping.check(10 * check, loss)
    assert (stopping.decay_from, stopping.ends) == (50, 50 + round(50 * 0.3 / 0.7))
    assert not stopping.due(60)
    short = EarlyStopping(10, 1, 60)
    short.check(10, 1.0)
    short.check(50, 1.0)
    assert short.ends == 60  # never longer than planned


def test_a_task_ends_early_and_smoothly() -> None:
    _, trainer, _ = trainer_of()
    rates = [trainer.optimiser.param_groups[0]["lr"] for _ in trainer]
    assert len(rates) == trainer.iterations < 400
    assert trainer.stopping is not None
    assert rates[-1] < 1e-9
    assert max(before - after for before, after in pairwise(rates)) < 0.2 * 0.02
    assert max(after - before for before, after in pairwise(rates)) <= 0


def test_without_held_out_examples_a_task_takes_all_its_steps() -> None:
    _, trainer, _ = trainer_of(rows=60, training__iterations=30)
    assert trainer.stopping is None
    assert len(list(trainer)) == 30


@pytest.mark.parametrize("stop", [35, "ending"])
def test_a_restart_changes_nothing(stop: int | str) -> None:
    learner, trainer, data = trainer_of()
    stored: dict[str, torch.Tensor] = {}
    for step in trainer:
        assert trainer.stopping is not None
        begun = step.iteration > trainer.stopping.decay_from + 2
        if not stored and (step.iteration == stop or (stop == "ending" and begun)):
            stored = {name: tensor.clone() for name, tensor in learner.tensors(training=True).items()}
            facts = learner.facts()
    again = ContinualLearner(learner.config, "classification", Scenario.CLASS, (2,))
    again.restore(facts, stored)
    resumed = again.continue_task(data, stored)
    list(resumed)
    assert resumed.iterations == trainer.iterations
    for name, tensor in learner.model.tensors().items():
        assert torch.equal(tensor, again.model.tensors()[name]), name


def test_tasks_of_other_sizes_take_other_numbers_of_steps() -> None:
    steps = [trainer_of(rows, training__reference_rows=100)[1].iterations for rows in (100, 180, 22)]
    assert steps == [400, round(400 * 1.8 ** (1 / 3)), round(400 * 0.22 ** (1 / 3))]


def test_a_warm_up_rises_to_the_learning_rate() -> None:
    _, trainer, _ = trainer_of(60, training__iterations=20, training__cosine=False, training__warm_up=4)
    rates = [trainer.optimiser.param_groups[0]["lr"], *(trainer.optimiser.param_groups[0]["lr"] for _ in trainer)]
    assert rates[:6] == pytest.approx([0.004, 0.008, 0.012, 0.016, 0.02, 0.02])
