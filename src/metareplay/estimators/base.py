"""What classifier and regressor share: learning, storing, and keeping track of their tasks."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from metareplay.arrays import Inputs, to_inputs
from metareplay.benchmarks.base import Problem, Scenario, TaskData, TaskInfo
from metareplay.data.frame_examples import plain_inputs
from metareplay.errors import CheckpointError, ConfigError, DataError, NotTrainedError, TrainingWarning
from metareplay.inference.answers import Answer
from metareplay.learner.config import RunConfig, build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.sizes import TYPICAL, Facts, own_settings
from metareplay.learner.store import StoredModel, load_model, save_model
from metareplay.nets.own import name_of
from metareplay.scaling import Scaling
from metareplay.training.loop import TaskTrainer
from metareplay.training.progress import LiveProgress, NullObserver, Observer, Stage
from metareplay.training.watch import Notice

Array = npt.NDArray[Any]
TaskName = str | int


class ContinualEstimator:
    """The base of classifier and regressor."""

    problem: Problem
    scenario: Scenario

    def __init__(
        self,
        method: str = "pr-bbb",
        network: str | Callable[..., nn.Module] | None = None,
        *,
        seed: int | None = None,
        standardise: bool = True,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        settings = dict(settings or {})
        method, chosen = settings.pop("method", method), settings.pop("network", network)
        of_runs = ("benchmark", "data_dir", "data_seed", "threads")
        if wrong := [key for key in settings if key in of_runs or key.startswith("data.")]:
            raise ConfigError(
                f"{wrong[0]} is a setting of runs, not of estimators; remove it (threads: torch.set_num_threads)"
            )
        self._given = {**({} if seed is None else {"seed": seed}), **settings, "method": method}
        self._network = None if chosen is None else chosen if isinstance(chosen, str) else name_of(chosen)
        self.config = self._sized(TYPICAL[self.problem], method)
        """Network, length and strength of training are chosen by the first task, unless they are given."""
        self.standardise = standardise
        self.learner: ContinualLearner | None = None
        self.tasks: list[TaskInfo] = []
        self.scaling = Scaling({})
        self.inputs: Mapping[str, Any] = {}
        """How files and data frames are turned into inputs, if the model learned from such."""

    def __repr__(self) -> str:
        config, kind = self.config, type(self).__name__
        about = f"method={config.method!r}, network={config.network!r}, seed={config.seed}"
        return f"{kind}({about}, tasks={self.task_names})" if self.tasks else f"{kind}({about})"

    @property
    def task_names(self) -> list[str]:
        """The names of the tasks, in the order in which they were learned."""
        return [task.name for task in self.tasks]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return self._trained().input_shape

    def _learn(self, x: Tensor, y: Tensor, info: TaskInfo, width: int, progress: bool) -> None:
        """Train on a new task; if anything goes wrong, the model is left unchanged."""
        if info.name in self.task_names:
            known = ", ".join(self.task_names)
            raise ConfigError(f"a task named {info.name!r} was learned already; choose another name (known: {known})")
        fresh = self.learner is None
        if self.learner is None:
            self.scaling = (
                Scaling.of(x, y, regression=self.problem == "regression") if self.standardise else Scaling({})
            )
        split = TaskData(self.scaling.x(x), self.scaling.y(y))
        if self.learner is None:
            self.config = self._sized(Facts.of(split, self.problem), self.config.method)
            self.learner = ContinualLearner(self.config, self.problem, self.scenario, tuple(x.shape[1:]))
        learner = self.learner
        try:
            self._train(learner, lambda: learner.begin_task(split, width), info.name, progress, split)
        except BaseException:
            self.learner = None if fresh else learner
            raise
        self.tasks.append(info)

    def _sized(self, first: Facts, method: str) -> RunConfig:
        """The configuration for data like those of the first task."""
        defaults, _ = own_settings(first, self.problem, method, self._network, self._given)
        return build_config(defaults, self._given, type(self).__name__)

    def _train(
        self,
        learner: ContinualLearner,
        begin: Callable[[], TaskTrainer],
        name: str,
        progress: bool,
        new: TaskData | None = None,
    ) -> None:
        """Train to the end, and finish the task if it is new; if anything goes wrong, the learner is left unchanged."""
        before = (learner.facts(), {key: tensor.clone() for key, tensor in self._tensors().items()})
        observer: Observer = _terminal_progress() if progress else NullObserver()
        try:
            trainer = begin()
            observer.stage_begins(Stage(0, 1, name), 0, trainer.iterations)
            for step in trainer:
                observer.step(step)
                _warn(name, step.notice)
            if new is None:
                learner.finish_update(trainer)
            else:
                _warn(name, learner.finish_task(new))
        except BaseException:
            learner.restore(*before)
            raise
        finally:
            observer.close()
        learner.trainer = None  # the optimiser and the data are no longer needed

    def fine_tune(self, *, again: bool = False, progress: bool = False) -> Self:
        """Update all tasks on the coresets that a method with the suffix -cs keeps, to tell the tasks apart better.

        More tasks can be learned afterwards. A coreset is new evidence only once: ``again`` allows it to be used again.
        """
        learner = self._trained()
        self._train(learner, lambda: learner.begin_update(again=again), "coresets of all tasks", progress)
        return self

    def refresh_task(self, task: TaskName, *, again: bool = False, progress: bool = False) -> Self:
        """Update one task on its own coreset: the plain Bayesian update. Posterior replay preserves the other tasks."""
        learner, index = self._trained(), self._task_index(task)
        self._train(learner, lambda: learner.begin_update(index, again=again), self.tasks[index].name, progress)
        return self

    def _tensors(self) -> dict[str, Tensor]:
        learner = self.learner
        return learner.tensors(training=False) if learner is not None and learner.num_tasks else {}

    def _trained(self) -> ContinualLearner:
        if self.learner is None or not self.tasks:
            raise NotTrainedError("no task has been learned yet; call learn_task(X, y) first")
        return self.learner

    def _task_index(self, task: TaskName) -> int:
        """The index of a task, by its name or number."""
        if isinstance(task, np.integer):
            task = int(task)
        if isinstance(task, int) and -len(self.tasks) <= task < len(self.tasks):
            return task % len(self.tasks)
        if str(task) not in self.task_names:
            raise DataError(f"task {task!r} is unknown; the model has learned {', '.join(map(repr, self.task_names))}")
        return self.task_names.index(str(task))

    def _inputs(self, x: Inputs) -> Tensor:
        shape = self._trained().input_shape
        return self.scaling.x(to_inputs(plain_inputs(x, self.inputs), shape))

    def _answer(self, x: Inputs, task: TaskName | None, criterion: str | None, batch_wise: int | None) -> Answer:
        """The learner's answer, in which tasks and classes are indices."""
        learner, index = self._trained(), None if task is None else self._task_index(task)
        return learner.predictor.predict(self._inputs(x), index, criterion=criterion, batch_wise=batch_wise)

    def _task_answer(self, answer: Answer) -> tuple[Array | None, Array | None]:
        """Probabilities of the tasks (N, T), and whether inputs are known (N,)."""
        probabilities, known = answer.task_probabilities, answer.known
        return None if probabilities is None else probabilities.numpy(), None if known is None else known.numpy()

    def _names(self, answer: Answer) -> list[str]:
        return [self.tasks[index].name for index in answer.task.tolist()]

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder (safetensors and JSON)."""
        save_model(Path(folder), self._trained(), self.tasks, self.scaling.tensors, self.inputs)

    @classmethod
    def load(cls, folder: str | Path, *, settings: Mapping[str, Any] | None = None) -> Self:
        """Load a model written by ``save`` or ``metareplay run``; it makes the same predictions, bit for bit.

        ``settings`` can replace those of inference, e.g. ``{"inference.predictive": "moments"}``.
        """
        return cls.of(load_model(Path(folder), settings))

    @classmethod
    def of(cls, stored: StoredModel) -> Self:
        """The estimator for a model that ``load_model`` has read."""
        problem = stored.learner.problem
        if problem != cls.problem:
            raise CheckpointError(f"{stored.folder} holds a {problem} model; load it with {_CLASSES[problem]}")
        estimator = cls(stored.learner.config.method, stored.learner.config.network, standardise=bool(stored.scaling))
        estimator.config, estimator.learner, estimator.tasks = stored.learner.config, stored.learner, stored.tasks
        estimator.scaling, estimator.inputs = Scaling(stored.scaling), stored.inputs
        return estimator


_CLASSES = {"classification": "ContinualClassifier", "regression": "ContinualRegressor"}


def _warn(task: str, notice: Notice | None) -> None:
    """A warning that points to the user's call of ``learn_task``."""
    if notice is not None:
        warnings.warn(f"task {task!r}: {notice.text}", TrainingWarning, stacklevel=5)


def _terminal_progress() -> LiveProgress:
    from rich.console import Console

    return LiveProgress(Console(stderr=True))
