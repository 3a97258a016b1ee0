"""Three small tasks and learners for them: what the tests of strategies in the training loop share."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.seeding import generator_for
from metareplay.strategies.base import Strategy
from metareplay.training.loop import TaskTrainer


class ThreeTasks:
    """Tasks with ten examples each, which are learned in a few steps."""

    classes = (2, 3, 2)
    steps, rate, batch_size = 6, 0.01, 4
    settings: Mapping[str, Any] = {
        "network": "mlp-4",
        "training.iterations": steps,
        "training.batch_size": batch_size,
        "training.learning_rate": rate,
        "hypernet.hidden": [6],
        "hypernet.task_embedding_size": 3,
        "hypernet.chunk_size": 7,
    }

    def data(self, task: int) -> TaskData:
        x = torch.randn(10, 2, generator=generator_for(task, "contract"))
        return TaskData(x, torch.arange(10) % self.classes[task])

    def learner(
        self, method: str, given: Mapping[str, Any] | None = None, strategy: Strategy | None = None
    ) -> ContinualLearner:
        config = build_config({**self.settings, "method": method}, given or {}, "test")
        learner = ContinualLearner(config, "classification", Scenario.CLASS, (2,), total_outputs=sum(self.classes))
        learner.strategy = strategy or learner.strategy
        return learner

    def begin(self, learner: ContinualLearner, task: int) -> TaskTrainer:
        return learner.begin_task(self.data(task), self.classes[task])


@pytest.fixture(scope="session")
def three_tasks() -> ThreeTasks:
    return ThreeTasks()
