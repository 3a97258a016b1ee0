"""The continual learner: configuration, model and strategy together. Runs and estimators both drive this."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from metareplay.benchmarks.base import Problem, Scenario, Split
from metareplay.errors import DataError, MetaReplayError
from metareplay.evaluation.evaluate import Evaluator
from metareplay.experiments.build import build_matching, build_model, build_strategy, check_size
from metareplay.experiments.config import RunConfig
from metareplay.model import ContinualModel
from metareplay.seeding import generator_for
from metareplay.strategies.base import Strategy, TrainingData
from metareplay.training.loop import TaskTrainer


class ContinualLearner:
    """Learns tasks one at a time and can be stored between any two training steps."""

    def __init__(
        self,
        config: RunConfig,
        problem: Problem,
        scenario: Scenario,
        input_shape: tuple[int, ...],
        *,
        total_outputs: int | None = None,
    ) -> None:
        self.config, self.problem, self.scenario, self.input_shape = config, problem, scenario, tuple(input_shape)
        self.model: ContinualModel = build_model(config, problem, scenario, self.input_shape, total_outputs)
        self.strategy: Strategy = build_strategy(config)
        self.evaluator = Evaluator(self.model, config.inference, regression=problem == "regression", seed=config.seed)
        self.trainer: TaskTrainer | None = None

    @property
    def num_tasks(self) -> int:
        """Tasks that have a place in the model."""
        return self.model.num_tasks

    def begin_task(self, train: Split, width: int, *, expected_tasks: int = 0) -> TaskTrainer:
        """Give a new task (so many classes or targets) its place, and return what trains it."""
        self._check(train, width)
        before = (self.facts(), self.tensors(training=False) if self.num_tasks else {})
        task = self.model.add_task(width, generator=generator_for(self.config.seed, "initialise", self.model.num_tasks))
        try:
            check_size(self.config, self.model, expected_tasks)
            self.strategy.before_task(self.model, task)
            self.trainer = self._make_trainer(task, train)
        except MetaReplayError:  # a refused task leaves no trace
            self.restore(*before)
            raise
        return self.trainer

    def continue_task(self, train: Split, tensors: Mapping[str, Tensor]) -> TaskTrainer:
        """Return what trains the last task, in the state of a checkpoint that ``restore`` was given."""
        task = self.model.num_tasks - 1
        self.strategy.restore(self.model, task, _under("strategy.", tensors))
        self.trainer = self._make_trainer(task, train)
        self.trainer.restore(_under("trainer.", tensors))
        return self.trainer

    def remember_data(self, task: int, train: Split) -> TrainingData:
        """The training data as the strategy wants it; also tells it of a finished task's data after a restart."""
        y = train.y if self.problem == "regression" else train.y + self._offset(task)
        return self.strategy.data_for(task, TrainingData(train.x, y))

    def _offset(self, task: int) -> int:
        """Class 0 of a task is this output among those that compete in training."""
        return self.model.heads[task].start if self.model.layout.one_softmax else 0

    def _make_trainer(self, task: int, train: Split) -> TaskTrainer:
        data, config = self.remember_data(task, train), self.config
        matching = build_matching(config, self.model.spec.numel, generator=generator_for(config.seed, "matching", task))
        return TaskTrainer(self.model, self.strategy, task, data, config.training, config.posterior, seed=config.seed, matching=matching)

    def _check(self, train: Split, width: int) -> None:
        if len(train.x) == 0:
            raise DataError("the task has no training examples; every task needs at least one")
        if tuple(train.x.shape[1:]) != self.input_shape:
            raise DataError(f"inputs have shape {tuple(train.x.shape[1:])}, but this model learned inputs of shape {self.input_shape}")
        if not torch.isfinite(train.x).all():
            row = int((~torch.isfinite(train.x.flatten(1))).any(1).nonzero()[0])
            raise DataError(f"the inputs contain NaN or infinite values (first in row {row}); clean the data before learning")
        if self.problem == "regression" and not torch.isfinite(train.y).all():
            raise DataError("the targets contain NaN or infinite values; clean the data before learning")
        if self.problem == "classification" and not (int(train.y.min()) >= 0 and int(train.y.max()) < width):
            raise DataError(f"class indices must lie in 0..{width - 1}, but go from {int(train.y.min())} to {int(train.y.max())}")

    def tensors(self, *, training: bool) -> dict[str, Tensor]:
        """The model and what the strategy keeps of old tasks; while a task is trained also its trainer and the strategy's own state."""
        stored = {f"model.{name}": tensor for name, tensor in self.model.tensors().items()}
        stored |= {f"memory.{name}": tensor for name, tensor in self.strategy.memory().items()}
        if training and self.trainer is not None:
            stored |= {f"strategy.{name}": tensor for name, tensor in self.strategy.tensors().items()}
            stored |= {f"trainer.{name}": tensor for name, tensor in self.trainer.tensors().items()}
        return stored

    def facts(self) -> dict[str, Any]:
        """What the tensors do not say."""
        return {"heads": self.model.head_bounds(), "total_outputs": self.model.total_outputs}

    def restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Become the learner that gave these facts and tensors."""
        self.trainer = None
        self.model.restore([(start, stop) for start, stop in facts["heads"]], _under("model.", tensors))
        self.strategy.recall(_under("memory.", tensors))

    def is_finite(self) -> bool:
        """Whether all trained numbers are finite, so that the state is worth keeping."""
        return all(bool(torch.isfinite(parameter).all()) for parameter in self.model.task_map.parameters())


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
