"""The reservoir, replay from it, and learning without forgetting."""

from typing import Any, cast

import pytest
import torch

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.strategies.reservoir import Reservoir


def learner(method: str, **settings: Any) -> ContinualLearner:
    given = {"training.iterations": 60, "training.batch_size": 16, "training.learning_rate": 0.02, **settings}
    config = build_config({"method": method, "network": "mlp-8"}, given, "test")
    return ContinualLearner(config, "classification", Scenario.CLASS, (2,))


def blobs(task: int, count: int = 90) -> TaskData:
    """Two classes of a task: four blobs in the corners, two for each task."""
    generator = torch.Generator().manual_seed(task)
    y = torch.arange(count) % 2
    centre = torch.stack([4.0 * y - 2, torch.full((count,), 4.0 * task - 2)], 1)
    return TaskData(centre + 0.5 * torch.randn(count, 2, generator=generator), y)


def learned(method: str, **settings: Any) -> ContinualLearner:
    model = learner(method, **settings)
    for task in range(2):
        for _ in model.begin_task(blobs(task), 2):
            pass
    return model


def first_task_accuracy(model: ContinualLearner) -> float:
    """The classes of both tasks compete."""
    answer = model.predictor.predict(blobs(0).x)
    return float((answer.probabilities.argmax(1) == blobs(0).y).double().mean())  # type: ignore[union-attr]


def test_every_example_is_kept_with_the_same_probability() -> None:
    kept = torch.zeros(3)
    for seed in range(40):
        model = learner("er", seed=seed, **{"strategy.memory_size": 30})
        strategy = cast(Reservoir, model.strategy)
        for task in range(3):
            x = torch.full((100, 2), float(task))
            strategy.after_task(model.model, task, TaskData(x, torch.zeros(100, dtype=torch.int64)))
        assert strategy.x is not None
        assert len(strategy.x) == 30
        kept += torch.bincount(strategy.x[:, 0].long(), minlength=3)
    assert (kept / kept.sum() - 1 / 3).abs().max() < 0.05


@pytest.mark.parametrize("method", ["er", "der++"])
def test_replayed_examples_keep_the_first_task(method: str) -> None:
    assert first_task_accuracy(learned(method)) > 0.9


def test_without_replay_the_first_task_is_forgotten() -> None:
    assert first_task_accuracy(learned("er", **{"strategy.strength": 0.0})) < 0.5


def test_outputs_of_later_tasks_are_not_held() -> None:
    model = learned("der++")
    strategy = cast(Reservoir, model.strategy)
    assert strategy.outputs is not None
    assert strategy.y is not None
    first = strategy.y < 2
    assert strategy.outputs.shape[1] == 4
    assert strategy.widths is not None
    assert (strategy.widths[first] == 2).all()
    assert (strategy.widths[~first] == 4).all()


def test_learning_without_forgetting_holds_the_outputs_of_before() -> None:
    changes = {}
    for strength in (0.0, 5.0):
        model = learner("lwf", **{"strategy.strength": strength})
        for _ in model.begin_task(blobs(0), 2):
            pass
        before = model.predictor.outputs(blobs(1).x, 0)
        for _ in model.begin_task(blobs(1), 2):
            pass
        after = model.predictor.outputs(blobs(1).x, 0)
        changes[strength] = float((before.softmax(-1) - after.softmax(-1)).abs().mean())
    assert changes[5.0] < 0.5 * changes[0.0]
