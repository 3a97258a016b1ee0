"""A loss that is not finite stops training with one clear error, and nothing of the failed step stays."""

from typing import Any

import pytest
import torch

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.errors import TrainingDiverged
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.training.loop import TaskTrainer


def trainer_of(method: str, settings: dict[str, Any]) -> TaskTrainer:
    given = {"method": method, "network": "mlp-5", "training.iterations": 9, **settings}
    learner = ContinualLearner(build_config({}, given, "test"), "classification", Scenario.CLASS, (2,))
    y = torch.arange(10) % 2
    return learner.begin_task(TaskData(torch.randn(10, 2, generator=torch.Generator().manual_seed(0)), y), 2)


@pytest.mark.parametrize("method", ["pr-bbb", "sp-dirac"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_inputs_that_are_not_finite_stop_before_the_first_step(method: str, value: float) -> None:
    trainer = trainer_of(method, {})
    trainer.examples.x[3] = value
    before = {name: tensor.clone() for name, tensor in trainer.model.tensors().items()}
    with pytest.raises(TrainingDiverged, match=r"loss of task 0 became .* in iteration 1 .*training\.learning_rate"):
        list(trainer)
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.model.tensors().items())
    assert trainer.iteration == 0


def test_a_huge_learning_rate_stops() -> None:
    trainer = trainer_of("pr-bbb", {"training.learning_rate": 1e30})
    with pytest.raises(TrainingDiverged, match="iteration 2"):
        list(trainer)
    assert trainer.iteration == 1


@pytest.mark.parametrize("method", ["pr-bbb", "sp-dirac"])
def test_the_last_step_may_not_diverge_either(method: str) -> None:
    with pytest.raises(TrainingDiverged):
        list(trainer_of(method, {"training.learning_rate": 1e39, "training.iterations": 1}))
