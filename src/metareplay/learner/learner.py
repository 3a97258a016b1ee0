"""The continual learner: configuration, model and strategy together. Runs and estimators both drive this."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from metareplay.benchmarks.base import Problem, Scenario, TaskData
from metareplay.errors import ConfigError, DataError, MetaReplayError
from metareplay.inference.predictor import PREDICTORS
from metareplay.learner.build import build_matching, build_model, build_strategy, check_size
from metareplay.learner.config import RunConfig
from metareplay.model import ContinualModel
from metareplay.posteriors.base import PriorMatching
from metareplay.seeding import derive_seed, generator_for
from metareplay.strategies.base import Strategy
from metareplay.strategies.coresets import CoresetReplay
from metareplay.training.coreset_batches import coreset_batches
from metareplay.training.loop import Job, TaskTrainer


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
        self.predictor = PREDICTORS[problem](self.model, config.inference, seed=config.seed, scenario=scenario)
        self.trainer: TaskTrainer | None = None
        if config.training.augmentation != "none" and len(input_shape) != 3:
            raise ConfigError(
                f"training.augmentation={config.training.augmentation} needs images of shape (C, H, W), but inputs have shape "
                f"{self.input_shape}; set it to none"
            )
        if problem == "regression" and config.inference.adaptive is not None:
            raise ConfigError("inference.adaptive settles classes, and regression has none; leave it out")
        if problem == "regression" and config.strategy.finetune_others in ("uniform", "random"):
            raise ConfigError(
                f"strategy.finetune_others={config.strategy.finetune_others} needs classes: no real target says that nothing is known "
                "about an input; leave it out, or set it to none"
            )

    @property
    def num_tasks(self) -> int:
        """Tasks that have a place in the model."""
        return self.model.num_tasks

    def begin_task(self, train: TaskData, width: int, *, expected_tasks: int = 0) -> TaskTrainer:
        """Give a new task (so many classes or targets) its place, and return what trains it."""
        self._check(train, width)
        before = (self.facts(), self.tensors(training=False) if self.num_tasks else {})
        generator = generator_for(self.config.seed, "initialise", self.model.num_tasks)
        task = self.model.add_task(width, generator=generator, probe=train.x[:2])
        try:
            check_size(self.config, self.model, expected_tasks)
            self.strategy.before_task(self.model, task)
            self.trainer = self._make_trainer(task, train)
        except MetaReplayError:  # a refused task leaves no trace
            self.restore(*before)
            raise
        return self.trainer

    def finish_task(self, train: TaskData) -> None:
        """Let criteria store what they need of the task that has just been trained, while its data are there."""
        self.predictor.fit_criteria(self.num_tasks - 1, train)

    def continue_task(self, train: TaskData, tensors: Mapping[str, Tensor]) -> TaskTrainer:
        """Return what trains the last task, in the state of a checkpoint that ``restore`` was given."""
        task = self.model.num_tasks - 1
        self.strategy.restore(self.model, task, _under("strategy.", tensors))
        self.trainer = self._make_trainer(task, train)
        self.trainer.restore(_under("trainer.", tensors))
        return self.trainer

    def begin_update(self, task: int | None = None, *, again: bool = False) -> TaskTrainer:
        """Return what updates the posteriors of all tasks on the modified coresets, or that of one task on its own coreset.

        A coreset is new evidence only once; a second time has to be asked for.
        """
        strategy, tasks = self._coresets(), range(self.num_tasks) if task is None else range(task, task + 1)
        if used := [old for old in tasks if strategy.uses[old]]:
            words = f"the coresets of tasks {', '.join(map(str, used))} have" if len(used) > 1 else f"the coreset of task {used[0]} has"
            if not again:
                raise ConfigError(
                    f"{words} updated the posterior before; using the same examples again counts their evidence twice and makes the model "
                    "too sure of itself. Pass again=True if you accept that"
                )
        strategy.begin_update(self.model, tasks)
        self.trainer = self._make_updater(strategy, tasks)
        return self.trainer

    def continue_update(self, tensors: Mapping[str, Tensor]) -> TaskTrainer:
        """Return what updates all tasks, in the state of a checkpoint that ``restore`` was given."""
        strategy = self._coresets()
        strategy.restore(self.model, self.num_tasks, _under("strategy.", tensors))
        self.trainer = self._make_updater(strategy, range(self.num_tasks))
        self.trainer.restore(_under("trainer.", tensors))
        return self.trainer

    def _coresets(self) -> CoresetReplay:
        if not isinstance(self.strategy, CoresetReplay):
            name = self.config.method
            raise ConfigError(f"{name} keeps no examples to update its posteriors with; learn with a method that does, e.g. pr-bbb-cs")
        return self.strategy

    def _make_updater(self, strategy: CoresetReplay, tasks: range) -> TaskTrainer:
        """Multitask training on coresets; with one task it is the plain Bayesian update, without other tasks' inputs."""
        config, chosen = self.config, self.config.strategy
        rate = chosen.finetune_learning_rate or config.training.learning_rate
        training: dict[str, Any] = {"batch_size": chosen.finetune_batch_size, "learning_rate": rate}
        training |= {"cosine": False, "rate_steps": (), "plateau_patience": None}  # they belong to a task
        if chosen.finetune_iterations or chosen.finetune_epochs:
            training |= {"iterations": chosen.finetune_iterations, "epochs": chosen.finetune_epochs}
        scale = config.posterior.prior_scale if chosen.finetune_prior_scale is None else chosen.finetune_prior_scale
        others = chosen.finetune_others or ("none" if self.problem == "regression" else "uniform")
        seed = derive_seed(config.seed, "update", strategy.updates())
        everything, batches = coreset_batches(
            [strategy.coresets[task] for task in tasks],
            [self.model.heads[task].stop - self.model.heads[task].start for task in tasks],
            others=others if len(tasks) > 1 else "none",
            own_share=chosen.finetune_own_share,
            batch_size=chosen.finetune_batch_size,
            generators=[generator_for(seed, "batches", task) for task in tasks],
        )
        return TaskTrainer(
            self.model,
            strategy,
            self.num_tasks,
            everything,
            config.training.model_copy(update=training),
            config.posterior.model_copy(update={"prior_scale": scale, "prior_power": 1.0}),  # no tempering of a learned posterior
            seed=seed,
            jobs=[Job(task, part, self._matching(seed, task)) for task, part in zip(tasks, batches, strict=True)],
        )

    def remember_data(self, task: int, train: TaskData) -> TaskData:
        """The training data as the strategy wants it; also tells it of a finished task's data after a restart."""
        y = train.y if self.problem == "regression" else train.y + self._offset(task)
        return self.strategy.data_for(task, TaskData(train.x, y))

    def _offset(self, task: int) -> int:
        """Class 0 of a task is this output among those that compete in training."""
        return self.model.heads[task].start if self.model.layout.one_softmax else 0

    def _make_trainer(self, task: int, train: TaskData) -> TaskTrainer:
        data, config = self.remember_data(task, train), self.config
        matching = self._matching(config.seed, task)
        return TaskTrainer(self.model, self.strategy, task, data, config.training, config.posterior, seed=config.seed, matching=matching)

    def _matching(self, seed: int, task: int) -> PriorMatching:
        generator = generator_for(seed, "matching", task)
        return build_matching(self.config, self.model.spec.numel, generator=generator, device=self.model.device)

    def _check(self, train: TaskData, width: int) -> None:
        if len(train.x) == 0:
            raise DataError("the task has no training examples; every task needs at least one")
        if tuple(train.x.shape[1:]) != self.input_shape:
            raise DataError(f"inputs have shape {tuple(train.x.shape[1:])}, but this model learned inputs of shape {self.input_shape}")
        if not all(bool(torch.isfinite(part).all()) for part in train.x.split(1000)):  # the check needs as much memory as what it looks at
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
        stored |= {f"criteria.{name}": tensor for name, tensor in self.predictor.task_statistics.tensors().items()}
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
        self.model.try_out(self.input_shape)
        self.predictor.task_statistics.restore(_under("criteria.", tensors))
        self.strategy.recall(_under("memory.", tensors))

    def is_finite(self) -> bool:
        """Whether all trained numbers are finite, so that the state is worth keeping."""
        trained = self.model.task_map.parameters()
        return self.model.task_buffers.is_finite() and all(bool(torch.isfinite(parameter).all()) for parameter in trained)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
