"""Synaptic intelligence: what weights contributed, and how that holds them."""

from typing import Any, cast

import pytest
import torch

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.strategies.synaptic_intelligence import SynapticIntelligence


def learner(method: str = "si", **settings: Any) -> ContinualLearner:
    given = {"training.iterations": 40, "training.batch_size": 16, "training.learning_rate": 0.01, **settings}
    config = build_config({"method": method, "network": "mlp-6"}, given, "test")
    return ContinualLearner(config, "classification", Scenario.CLASS, (3,))


def data(column: int) -> TaskData:
    """Two classes, told apart by one column."""
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(column))
    return TaskData(x, (x[:, column] > 0).long())


def learn(model: ContinualLearner, column: int) -> None:
    for _ in model.begin_task(data(column), 2):
        pass


def strategy(model: ContinualLearner) -> SynapticIntelligence:
    return cast(SynapticIntelligence, model.strategy)


def test_the_path_integral_is_what_the_loss_fell_by() -> None:
    """With full batches and small steps, gradient times change sums up to the change of the loss."""
    model = learner(**{"training.batch_size": 64, "training.learning_rate": 0.001, "statistics.held_out": 0.0})
    losses, paths = [], []
    for step in model.begin_task(data(0), 2):
        losses.append(float(step.terms.data))
        path = strategy(model).path
        paths.append(0.0 if path is None else float(path.sum()))
    assert losses[0] - losses[-1] == pytest.approx(paths[-2], rel=0.05)


def test_weights_that_contributed_are_important_and_new_outputs_are_not() -> None:
    model = learner()
    learn(model, 0)
    importance = strategy(model).importance
    assert importance is not None
    assert (importance >= 0).all()
    by_input = importance[:18].reshape(6, 3).sum(0)  # the first layer's weights: (18,) -> (3,)
    assert by_input.argmax() == 0  # the column that the classes depend on
    model.begin_task(data(1), 2)
    grown = strategy(model).importance
    assert grown is not None
    assert grown.sum() == pytest.approx(float(importance.sum()), rel=1e-6)
    assert (grown[model.model.introduced_by_task == 1] == 0).all()


def test_a_strong_penalty_preserves_the_first_task() -> None:
    accuracies = {}
    for strength in (0.0, 10.0):
        model = learner(**{"strategy.strength": strength, "training.iterations": 150})
        learn(model, 0)
        learn(model, 1)
        outputs = model.predictor.predict(data(0).x, 0)
        accuracies[strength] = float((outputs.probabilities.argmax(1) == data(0).y).double().mean())  # type: ignore[union-attr]
    assert accuracies[10.0] > max(0.9, accuracies[0.0])


def test_the_penalty_is_not_part_of_the_path() -> None:
    """Two strengths give nearly the same importance of the second task for one tiny step."""
    paths = []
    for strength in (0.0, 1000.0):
        model = learner(**{"strategy.strength": strength, "training.learning_rate": 1e-6})
        learn(model, 0)
        trainer = model.begin_task(data(1), 2)
        next(iter(trainer))
        path = strategy(model).path
        assert path is not None
        paths.append(path)
    torch.testing.assert_close(paths[0], paths[1], rtol=1e-2, atol=1e-6)


def test_clipped_steps_count_the_loss_that_they_gained() -> None:
    """Clipping changes the steps, not the loss: the path is still what the data term falls by, without the penalty."""
    small = {"training.batch_size": 64, "training.learning_rate": 0.001, "statistics.held_out": 0.0}
    model = learner(**small, **{"strategy.strength": 100.0, "training.clip_norm": 1.0})
    learn(model, 0)
    losses, paths = [], []
    for step in model.begin_task(data(1), 2):
        losses.append(float(step.terms.data))
        path = strategy(model).path
        paths.append(0.0 if path is None else float(path.sum()))
    assert losses[0] - losses[-1] == pytest.approx(paths[-2], rel=0.1)
