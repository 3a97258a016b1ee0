"""What classifier and regressor share: learning, storing, and keeping track of their tasks."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from metareplay.arrays import Inputs, Targets, inputs_and_targets, to_inputs
from metareplay.benchmarks.base import Problem, Scenario, TaskData, TaskInfo, label_columns
from metareplay.data.frame_examples import PlainExamples, plain_inputs, scored_examples, training_examples
from metareplay.errors import CheckpointError, ConfigError, DataError, TrainingWarning
from metareplay.estimators.exporting import Exports
from metareplay.estimators.hub import HubMethods
from metareplay.estimators.plain_state import OF_RUNS, changed_settings, instead_of, learned_state, learner_of
from metareplay.estimators.sklearn_manners import SklearnManners, TaskName, not_fitted, value_errors
from metareplay.estimators.task_verbs import TaskVerbs
from metareplay.inference.answers import Answer
from metareplay.learner.config import RunConfig, build_config
from metareplay.learner.features import FACTS, Extractor, backbone_of, refuse_texts, stored_extractor, without_features
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.lone_class import lone_example
from metareplay.learner.sizes import TYPICAL, Facts, own_settings
from metareplay.learner.store import StoredModel, load_model, save_model
from metareplay.nets.backbones import has_backbone, is_adapted, refuse_stored_name
from metareplay.nets.own import name_of
from metareplay.permissions import permit
from metareplay.scaling import Scaling
from metareplay.training.loop import TaskTrainer
from metareplay.training.progress import LiveProgress, NullObserver, Observer, Stage
from metareplay.training.watch import Notice

Array = npt.NDArray[Any]


class ContinualEstimator(SklearnManners, TaskVerbs, Exports, HubMethods):
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
        self.method, self.network, self.seed = method, network, seed
        self.standardise, self.settings = standardise, settings
        self.config = self._checked_config()
        """Network, length and strength of training are chosen by the first task, unless they are given."""
        self._start_anew()

    def _checked_config(self, first: Facts | None = None) -> RunConfig:
        """The configuration that the arguments make, for data like those of the first task."""
        if not isinstance(self.settings, Mapping | None):
            raise ConfigError(f"settings={self.settings!r} is not a mapping of settings to values; give a dict")
        settings = dict(self.settings or {})
        method, network = settings.pop("method", self.method), settings.pop("network", self.network)
        network = network if network is None or isinstance(network, str) else name_of(network)
        if network is not None:
            permit(network)
        if wrong := [key for key in settings if key in OF_RUNS or key.startswith("data.")]:
            raise ConfigError(f"{wrong[0]} is a setting of runs, not of estimators; {instead_of(wrong[0])}")
        given = {**({} if self.seed is None else {"seed": self.seed}), **settings}
        defaults, _ = own_settings(first or TYPICAL[self.problem], self.problem, method, network, given)
        return build_config(defaults, given, type(self).__name__)

    def _start_anew(self) -> None:
        """Be without tasks."""
        self.learner: ContinualLearner | None = None
        self.tasks: list[TaskInfo] = []
        self.scaling = Scaling({})
        self.extractor: Extractor | None = None
        """What turns inputs into features, if the network has a backbone and a task was learned."""
        self.inputs: Mapping[str, Any] = {}
        """How files and data frames are turned into inputs, if the model learned from such."""

    def __getstate__(self) -> dict[str, Any]:
        """Arguments and what was learned, as plain values: for ``copy.deepcopy`` and for scikit-learn's processes."""
        learned = None if self.learner is None else learned_state(self.learner)
        kept = {name: value for name, value in vars(self).items() if name not in ("config", "learner")}
        return {**kept, "config": self.config.model_dump(mode="json"), "learner": learned}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        learner = None if state["learner"] is None else learner_of(state["learner"], self.problem)
        vars(self).update({**state, "config": RunConfig.of(state["config"]), "learner": learner})

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
        shape = self._shape()
        return self._trained().input_shape if shape is None else shape

    def _shape(self) -> tuple[int, ...] | None:
        """The same; None before the first task."""
        if self.extractor is not None:
            return self.extractor.input_shape
        return None if self.learner is None else self.learner.input_shape

    def _examples(self, x: Any, y: Any) -> PlainExamples:
        """What a new task is learned from, as arrays."""
        examples = training_examples(x, y, self.inputs, fresh=self.learner is None)
        refuse_texts(examples.known, self.config.network)
        return examples

    def _learn(self, x: Tensor, y: Tensor, info: TaskInfo, width: int, progress: bool) -> None:
        """Train on a new task; if anything goes wrong, the model is left unchanged."""
        if info.name in self.task_names:
            known = ", ".join(self.task_names)
            raise ConfigError(
                f"a task named {info.name!r} has already been learned; choose another name (known: {known})"
            )
        fresh, before = self.learner is None, self.scaling
        if (text := lone_example(len(x))) is not None:
            warnings.warn(f"task {info.name!r}: {text}", TrainingWarning, stacklevel=3)
        try:
            self.scaling = self._scaling(x, y)
            split = TaskData(self._features(self.scaling.x(x), keep=True), self.scaling.y(y))
            if self.learner is None:
                self.config = self._checked_config(Facts.of(split, self.problem))
                self.learner = ContinualLearner(self.config, self.problem, self.scenario, tuple(split.x.shape[1:]))
            learner = self.learner
            self._train(
                learner,
                lambda: learner.begin_task(split, width),
                info.name,
                progress,
                lambda _: learner.finish_task(split, [*self.tasks, info]),
            )
        except BaseException:
            self.scaling = before
            if fresh:
                self.learner = self.extractor = None
            raise
        self.tasks.append(info)

    def _scaling(self, x: Tensor, y: Tensor) -> Scaling:
        """That of the first task; later ones may bring a column's first variation."""
        if self.learner is not None:
            return self.scaling.following(x) if self.extractor is None else self.scaling  # a backbone sees none of it
        return Scaling.of(x, y, regression=self.problem == "regression") if self.standardise else Scaling({})

    def _features(self, x: Tensor, *, keep: bool) -> Tensor:
        """Standardised inputs as the learner sees them: as they are, or features of a backbone."""
        if not has_backbone(self.config.network):
            return x
        if self.extractor is None:
            backbone = backbone_of(self.config)
            adapted = is_adapted(self.config.network)
            self.extractor = Extractor.of(backbone, x, self.scaling, adapted=adapted, standardise=self.standardise)
        return self.extractor.features(x, keep=keep)

    def _train(
        self,
        learner: ContinualLearner,
        begin: Callable[[], TaskTrainer],
        name: str,
        progress: bool,
        finish: Callable[[TaskTrainer], Any],
    ) -> None:
        """Train to the end, and finish what was begun; if anything goes wrong, the learner is left unchanged."""
        before = (learner.facts(), {key: _copied(key, tensor) for key, tensor in self._tensors().items()})
        observer: Observer = _terminal_progress() if progress else NullObserver()
        try:
            trainer = begin()
            observer.stage_begins(Stage(0, 1, name), 0, trainer.iterations)
            for step in trainer:
                observer.step(step)
                _warn(name, step.notice)
            _warn(name, finish(trainer))
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
        title = "coresets of all tasks"
        self._train(learner, lambda: learner.begin_update(again=again), title, progress, learner.finish_update)
        return self

    def refresh_task(self, task: TaskName, *, again: bool = False, progress: bool = False) -> Self:
        """Update one task on its own coreset: the plain Bayesian update. Posterior replay preserves the other tasks."""
        learner, index = self._trained(), self._task_index(task)
        name = self.tasks[index].name
        self._train(learner, lambda: learner.begin_update(index, again=again), name, progress, learner.finish_update)
        return self

    def _tensors(self) -> dict[str, Tensor]:
        learner = self.learner
        return learner.tensors(training=False) if learner is not None and learner.num_tasks else {}

    def _trained(self) -> ContinualLearner:
        if self.learner is None or not self.tasks:
            raise not_fitted("no task has been learned yet; call learn_task(X, y) first")
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
        self._trained()
        with value_errors():
            self._refuse_other_features(x)
            inputs = self.scaling.x(to_inputs(plain_inputs(x, self.inputs), self.input_shape))
        return self._features(inputs, keep=False)

    def _scored(self, x: Inputs, y: Targets | None) -> tuple[Tensor, Any]:
        """Inputs in the user's units and raw targets, to score predictions with."""
        self._trained()
        with value_errors():
            self._refuse_other_features(x)
            examples = scored_examples(x, y, self.inputs)
            return inputs_and_targets(examples.x, examples.y, self.input_shape)

    def _answer(self, x: Inputs, task: TaskName | None, criterion: str | None, batch_wise: int | None) -> Answer:
        """The learner's answer, in which tasks and classes are indices."""
        learner, index = self._trained(), None if task is None else self._task_index(task)
        labels = torch.tensor(label_columns(self.tasks)[1]) if self.problem == "classification" else None
        return learner.predictor.predict(
            self._inputs(x), index, criterion=criterion, batch_wise=batch_wise, labels=labels
        )

    def _task_answer(self, answer: Answer) -> tuple[Array | None, Array | None]:
        """Probabilities of the tasks (N, T), and whether inputs are known (N,)."""
        probabilities, known = answer.task_probabilities, answer.known
        return None if probabilities is None else probabilities.numpy(), None if known is None else known.numpy()

    def _names(self, answer: Answer) -> list[str]:
        return [self.tasks[index].name for index in answer.task.tolist()]

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder (safetensors and JSON)."""
        save_model(Path(folder), self._trained(), self.tasks, *self.stored_inputs())

    def stored_inputs(self) -> tuple[Mapping[str, Tensor], Mapping[str, Any]]:
        """Scaling and encoding of inputs as they are stored, with those of a backbone."""
        if self.extractor is None:
            return self.scaling.tensors, dict(self.inputs)
        return {**self.scaling.tensors, **self.extractor.tensors()}, {**self.inputs, FACTS: self.extractor.facts()}

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        settings: Mapping[str, Any] | None = None,
        network: Callable[..., nn.Module] | None = None,
    ) -> Self:
        """Load a model written by ``save`` or ``metareplay run``; it makes the same predictions, bit for bit.

        ``settings`` can replace those of inference, e.g. ``{"inference.predictive": "moments"}``. ``network`` is the
        function that builds your own network: a model never decides which code is run.
        """
        return cls.of(load_model(Path(folder), settings, network=network))

    @classmethod
    def of(cls, stored: StoredModel) -> Self:
        """The estimator for a model that ``load_model`` has read."""
        problem = stored.learner.problem
        if problem != cls.problem:
            raise CheckpointError(f"{stored.folder} holds a {problem} model; load it with {_CLASSES[problem]}")
        config = stored.learner.config
        refuse_stored_name(config.network)  # the constructor takes its arguments for the user's, who may name code
        extractor = stored_extractor(config, stored.inputs, stored.scaling)
        estimator = cls(config.method, config.network, seed=config.seed, standardise=bool(stored.scaling))
        estimator.settings = changed_settings(estimator.config, config) or None
        estimator.config, estimator.learner, estimator.tasks = config, stored.learner, stored.tasks
        estimator.scaling, estimator.inputs = Scaling(stored.scaling), without_features(stored.inputs)
        estimator.extractor = extractor
        return estimator


_CLASSES = {"classification": "ContinualClassifier", "regression": "ContinualRegressor"}


def _copied(key: str, tensor: Tensor) -> Tensor:
    """A tensor that training does not change; statistics of tasks are replaced, never changed."""
    return tensor if key.startswith("criteria.") else tensor.clone()


def _warn(task: str, notice: Notice | None) -> None:
    """A warning that points to the user's call of ``learn_task``."""
    if notice is not None:
        warnings.warn(f"task {task!r}: {notice.text}", TrainingWarning, stacklevel=5)


def _terminal_progress() -> LiveProgress:
    from rich.console import Console

    return LiveProgress(Console(stderr=True))
