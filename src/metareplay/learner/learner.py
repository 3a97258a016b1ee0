"""The continual learner: configuration, model and strategy together. Both runs and estimators use it."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from metareplay.benchmarks.base import Problem, Scenario, TaskData, TaskInfo
from metareplay.errors import ConfigError, MetaReplayError
from metareplay.inference.predictor import PREDICTORS
from metareplay.inference.reference import Change, change_of, imagined_examples, take_reference
from metareplay.inference.statistics.revise import examples_of
from metareplay.learner.batches import training_batches
from metareplay.learner.build import build_matching, build_model, build_strategy, check_size, fixed_prior
from metareplay.learner.chance import at_chance
from metareplay.learner.checked import check_examples
from metareplay.learner.config import RunConfig
from metareplay.learner.held_out import joined, split
from metareplay.model import ContinualModel
from metareplay.model_changes import remove_task, widen_task
from metareplay.posteriors.base import HandsOn, PriorMatching
from metareplay.seeding import derive_seed, generator_for
from metareplay.strategies.base import InfersTasks, Strategy, Update, current_state
from metareplay.strategies.revision import Revision, is_revision
from metareplay.task_maps.lineage import Lineage
from metareplay.training.loop import Job, TaskTrainer
from metareplay.training.objective import Objective
from metareplay.training.watch import Notice

MOST_IMAGINED = 2000
"""Inputs that a task rehearses while it is trained further."""
MEMORY = "memory."
"""Prefix of the names of the strategy's state."""
HANDED_ON = "matching."
"""Prefix of the names of what prior matching hands on from task to task."""


class ContinualLearner:
    """Learns tasks one at a time; it can be saved between any two training steps."""

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
        self.strategy: Strategy = build_strategy(config, problem)
        infers = self.strategy if isinstance(self.strategy, InfersTasks) else None
        self.predictor = PREDICTORS[problem](
            self.model, config.inference, config.statistics, seed=config.seed, scenario=scenario, infers=infers
        )
        self.trainer: TaskTrainer | None = None
        self.handed_on: dict[str, Tensor] = {}
        """What the last task's prior matching leaves to that of the next one; usually nothing."""
        if config.training.augmentation != "none" and len(input_shape) != 3:
            raise ConfigError(
                f"training.augmentation={config.training.augmentation} needs images of shape (C, H, W), but inputs "
                f"have shape {self.input_shape}; set it to none"
            )
        if problem == "regression" and config.inference.adaptive is not None:
            raise ConfigError("inference.adaptive needs classes to decide between, but regression has none; remove it")

    @property
    def num_tasks(self) -> int:
        """The number of tasks in the model."""
        return self.model.num_tasks

    def begin_task(self, train: TaskData, width: int, *, expected_tasks: int = 0) -> TaskTrainer:
        """Add a task with ``width`` classes or targets, and return its trainer."""
        check_examples(train, width, self.problem, self.input_shape)
        before = (self.facts(), self.tensors(training=False) if self.num_tasks else {})
        generator = generator_for(self.config.seed, "initialise", self.model.lineage.added)
        task = self.model.add_task(width, generator=generator, probe=train.x)
        try:
            check_size(self.config, self.model, expected_tasks)
            self.strategy.before_task(self.model, task)
            self.predictor.keeper.before_training()
            self.trainer = self._make_trainer(task, train)
        except MetaReplayError:  # a refused task leaves no trace
            self.restore(*before)
            raise
        return self.trainer

    def finish_task(self, train: TaskData, tasks: Sequence[TaskInfo] = ()) -> Notice | None:
        """Store what will tell the task just trained apart from others; a notice if it does no better than chance.

        ``tasks`` are all tasks, with this one: they may share labels.
        """
        task = self.num_tasks - 1
        used, held_out = self._split(task, train)
        self.predictor.fit_criteria(task, used)
        self.predictor.keeper.after_task(task, used, held_out)
        self.predictor.calibrate(task, used, held_out)
        self.predictor.calibrate_mixing(task, joined(used, held_out), tasks)
        take_reference(self.predictor, task, held_out, self.input_shape)
        classes = self.problem == "classification"
        return at_chance(self.model, task, used, held_out, classes=classes, seed=self.config.seed)

    def finish_update(self, trainer: TaskTrainer) -> None:
        """Let what is stored about the tasks follow an update of their posteriors."""
        self.predictor.keeper.after_update(trainer.examples.x)

    def _seed(self, task: int, purpose: str) -> tuple[int, str, int]:
        """The random numbers of a task; of each of its revisions, others."""
        lineage, seed = self.model.lineage, self.config.seed
        number = lineage.number_of(task)
        if isinstance(self.strategy, Revision):
            seed = derive_seed(seed, "revision", number, lineage.revisions[task])
        return seed, purpose, number

    def begin_revision(self, task: int, train: TaskData, width: int | None = None) -> TaskTrainer:
        """Train a known task further on new examples, with ``width`` classes or as many as before.

        Its posterior is the prior of the update; the strategy protects all other tasks as it does while one is added.
        """
        head = self.model.heads[task]
        width = width or head.stop - head.start
        check_examples(train, width, self.problem, self.input_shape)
        before = (self.facts(), {name: tensor.clone() for name, tensor in self.tensors(training=False).items()})
        inner = self.strategy
        try:
            wider = width > head.stop - head.start
            imagined, weight = self._imagined(task, len(train.x), wider)  # the old answers, before anything changes
            fresh = torch.zeros(self.model.spec.numel, dtype=torch.bool, device=self.model.device)
            revision = Revision(inner, fixed_prior(self.config))
            self.strategy = revision
            if wider:
                generator = generator_for(*self._seed(task, "initialise"))
                fresh = widen_task(self.model, task, width, generator=generator)
            else:
                self.model.old_positions = None  # theta does not grow
            self.predictor.keeper.before_training(revision=True)
            revision.begin(self.model, task, fresh, imagined, weight)
            self.trainer = self._make_trainer(task, train)
        except MetaReplayError:  # a refused update leaves no trace
            self.strategy = inner
            self.restore(*before)
            raise
        return self.trainer

    def continue_revision(self, train: TaskData, tensors: Mapping[str, Tensor]) -> TaskTrainer:
        """Return the trainer of a revision, in the state of a checkpoint passed to ``restore``."""
        assert isinstance(self.strategy, Revision)
        self.trainer = self._make_trainer(self.strategy.task, train)
        self.trainer.restore(_under("trainer.", tensors))
        return self.trainer

    def finish_revision(self, train: TaskData, tasks: Sequence[TaskInfo] = ()) -> Notice | None:
        """Add the new examples to what is stored about the task just revised; all else as for ``finish_task``."""
        assert isinstance(self.strategy, Revision)
        task = self.strategy.task
        used, held_out = self._split(task, train)
        imagined, self.strategy = self.strategy.imagined, self.strategy.inner
        self.predictor.keeper.after_revision(task, used, held_out)
        seen = used if imagined is None else joined(used, TaskData(imagined.x, imagined.y - self._shift(task)))
        self.predictor.calibrate(task, seen, held_out)
        self.predictor.calibrate_mixing(task, joined(used, held_out), tasks)
        take_reference(self.predictor, task, held_out, self.input_shape)
        self.model.lineage.revisions[task] += 1
        classes = self.problem == "classification"
        return at_chance(self.model, task, used, held_out, classes=classes, seed=self.config.seed, revised=True)

    def remove_task(self, task: int) -> None:
        """Remove a task, with its embedding or weights, outputs, statistics and kept examples; later ones move down."""
        remove_task(self.model, task)  # or refuses, before anything has changed
        self.strategy.remove_task(task)
        self.predictor.remove_task(task)
        self.trainer = None

    def change_of(self, task: int) -> Change | None:
        """How far a task has moved since it was learned or last updated; None if that is not known."""
        return change_of(self.predictor, task, self.input_shape)

    def _imagined(self, task: int, new: int, wider: bool) -> tuple[TaskData | None, float]:
        """Inputs that are rehearsed, and their weight relative to the new examples: as many as the task has seen.

        New outputs never competed with the old classes, so no posterior knows that old inputs are not of new classes.
        """
        if not self.predictor.keeper.available:
            return None, 0.0
        needed = wider or (Objective.of(self.config).point and not self.strategy.keeps_revised)
        seen = examples_of(self.predictor.keeper.stored()[task])
        examples = imagined_examples(self.predictor, task, self.input_shape, min(seen, MOST_IMAGINED))
        weight = seen / new if needed else 0.0  # else they only show what the task knew
        return (None, 0.0) if examples is None else (self._with_columns(task, examples), weight)

    def _split(self, task: int, train: TaskData) -> tuple[TaskData, TaskData]:
        """The examples that training uses, and those held out."""
        generator = generator_for(*self._seed(task, "held out"))
        share = self.config.statistics.held_out if self.config.statistics.collect else 0.0
        return split(train, share, classes=self.problem == "classification", generator=generator)

    def continue_task(self, train: TaskData, tensors: Mapping[str, Tensor]) -> TaskTrainer:
        """Return the trainer of the last task, in the state of a checkpoint passed to ``restore``."""
        self.trainer = self._make_trainer(self.model.num_tasks - 1, train)
        self.trainer.restore(_under("trainer.", tensors))
        return self.trainer

    def revisit(self, task: int, train: Callable[[], TaskData]) -> None:
        """After a restart: offer a finished task's data to a strategy that needs them again."""
        self.strategy.revisit(task, lambda: self._with_columns(task, self._split(task, train())[0]))

    def begin_update(self, task: int | None = None, *, again: bool = False) -> TaskTrainer:
        """Return a trainer that updates the posteriors of all tasks, or of one, on examples that the strategy kept.

        Kept examples are new evidence only once; using them a second time must be requested.
        """
        trainer = self.try_update(task, again=again)
        if trainer is None:
            raise ConfigError(
                f"{self.config.method} keeps no examples to update its posteriors with; "
                "learn with a method that does, e.g. pr-bbb-cs"
            )
        return trainer

    def try_update(self, task: int | None = None, *, again: bool = False) -> TaskTrainer | None:
        """The same; None for methods that keep no examples."""
        tasks = range(self.num_tasks) if task is None else range(task, task + 1)
        update = self.strategy.begin_update(self.model, tasks, again=again)
        if update is not None:
            self.predictor.keeper.before_training()
        self.trainer = None if update is None else self._make_updater(update)
        return self.trainer

    def continue_update(self, tensors: Mapping[str, Tensor]) -> TaskTrainer:
        """Return the trainer of an update, in the state of a checkpoint passed to ``restore``."""
        self.trainer = self._make_updater(self.strategy.resume_update(self.model))
        self.trainer.restore(_under("trainer.", tensors))
        return self.trainer

    def _make_updater(self, update: Update) -> TaskTrainer:
        objective = Objective.of(self.config)._replace(prior_power=1.0)  # no tempering of a learned posterior
        if update.prior_scale is not None:
            objective = objective._replace(prior_scale=update.prior_scale)
        jobs = [
            Job(task, batches, self._matching(update.seed, "matching", task), auxiliary=False)
            for task, batches in update.batches.items()
        ]
        training = self.config.training.model_copy(update=dict(update.training))
        noise = generator_for(update.seed, "noise", self.num_tasks)
        return TaskTrainer(self.model, self.strategy, jobs, update.examples, training, objective, noise=noise)

    def _with_columns(self, task: int, train: TaskData) -> TaskData:
        """Classes as indices of the outputs that compete in training."""
        return train if self.problem == "regression" else TaskData(train.x, train.y + self._offset(task))

    def _shift(self, task: int) -> int:
        """What ``_with_columns`` adds to targets."""
        return 0 if self.problem == "regression" else self._offset(task)

    def _offset(self, task: int) -> int:
        """The index of a task's class 0 among the outputs that compete in training."""
        return self.model.heads[task].start if self.model.layout.one_softmax else 0

    def _make_trainer(self, task: int, train: TaskData) -> TaskTrainer:
        config, objective = self.config, Objective.of(self.config)
        if isinstance(self.strategy, Revision):
            objective = objective._replace(prior_power=1.0)  # no tempering of a learned posterior
        used, held_out = self._split(task, train)
        data = self.strategy.data_for(task, self._with_columns(task, used))
        order, other, noise = (generator_for(*self._seed(task, purpose)) for purpose in ("batches", "other", "noise"))
        classes = self.model.heads[task].stop - self.model.heads[task].start
        batches = training_batches(config.training, data, classes, self.input_shape, order=order, other=other)
        matching = self._matching(*self._seed(task, "matching"))
        watched = not any(config.training.auxiliary)  # these have targets of their own
        if isinstance(self.strategy, Revision) and self.problem == "classification":
            watched = watched and len(data.y.unique()) > 1  # else a constant answer would be right
        trainer = TaskTrainer(
            self.model,
            self.strategy,
            [Job(task, batches, matching)],
            data,
            config.training,
            objective,
            noise=noise,
            watched=watched,
            held_out=self._with_columns(task, held_out),
        )
        if isinstance(matching, HandsOn) and not isinstance(self.strategy, Revision):
            self._pass_on(matching, trainer)
        return trainer

    def _pass_on(self, matching: HandsOn, trainer: TaskTrainer) -> None:
        """Let a new task's prior matching start where that of the last one stopped, and keep it for the next."""
        if self.handed_on:
            matching.take_over(self.handed_on)

        def keep() -> None:
            self.handed_on = matching.handed_on()

        trainer.when_learned = keep

    def _matching(self, *seed: str | int) -> PriorMatching:
        generator = generator_for(*seed)  # type: ignore[arg-type]
        return build_matching(self.config, self.model.spec.numel, generator=generator, device=self.model.device)

    def tensors(self, *, training: bool) -> dict[str, Tensor]:
        """The model, the strategy's state and the task statistics; with ``training`` also the trainer."""
        stored = {f"model.{name}": tensor for name, tensor in self.model.tensors().items()}
        stored |= {f"{MEMORY}{name}": tensor for name, tensor in self.strategy.state().items()}
        stored |= {f"{HANDED_ON}{name}": tensor for name, tensor in self.handed_on.items()}
        stored |= {f"criteria.{name}": tensor for name, tensor in self.predictor.task_statistics.tensors().items()}
        if training and self.trainer is not None:
            stored |= {f"trainer.{name}": tensor for name, tensor in self.trainer.tensors().items()}
            stored |= {f"keeper.{name}": tensor for name, tensor in self.predictor.keeper.tensors().items()}
        return stored

    def facts(self) -> dict[str, Any]:
        """What the tensors do not contain."""
        model, lineage = self.model, deepcopy(self.model.lineage.facts())
        return {"heads": model.head_bounds(), "total_outputs": model.total_outputs, "lineage": lineage}

    def restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Restore the learner that these facts and tensors were taken from."""
        self.trainer = None
        lineage = None if facts.get("lineage") is None else Lineage.of(deepcopy(facts["lineage"]))
        self.model.restore([(start, stop) for start, stop in facts["heads"]], _under("model.", tensors), lineage)
        self.model.try_out(self.input_shape)
        self.handed_on = _under(HANDED_ON, tensors)
        self.predictor.task_statistics.restore(_under("criteria.", tensors))
        self.predictor.keeper.restore(_under("keeper.", tensors))
        earlier = current_state(_under("strategy.", tensors))  # as version 0.1 stored the state of a task under way
        state = _under(MEMORY, tensors) | earlier
        inner = self.strategy.inner if isinstance(self.strategy, Revision) else self.strategy
        self.strategy = Revision(inner, fixed_prior(self.config)) if is_revision(state) else inner
        self.strategy.load_state(self.model, state)

    def is_finite(self) -> bool:
        """Whether all trained numbers are finite, so that the state is worth saving."""
        trained = self.model.task_map.parameters()
        return self.model.task_buffers.is_finite() and all(
            bool(torch.isfinite(parameter).all()) for parameter in trained
        )


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
