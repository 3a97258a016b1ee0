"""The library's front door: learn tasks one at a time, predict with the task given or inferred, save and load."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from metareplay.arrays import Inputs, Targets, inputs_and_targets, plain_labels, to_inputs, to_real_targets
from metareplay.benchmarks.base import Problem, Scenario, Split
from metareplay.errors import CheckpointError, ConfigError, DataError, NotTrainedError
from metareplay.evaluation.evaluate import VARIANCE
from metareplay.experiments.config import build_config
from metareplay.experiments.learner import ContinualLearner
from metareplay.experiments.observers import LiveProgress, Observer, Silent
from metareplay.experiments.recipe_book import CUSTOM, default_settings
from metareplay.experiments.store import TaskInfo, load_model, save_model
from metareplay.inference.criteria import criterion_named, expected_entropy, predictive_variance, total_entropy
from metareplay.inference.predictive import log_likelihoods, log_predictive
from metareplay.inference.task_inference import infer_tasks, infer_tasks_batch_wise
from metareplay.model import HeadLayout
from metareplay.scaling import Scaling

Array = npt.NDArray[Any]
TaskName = str | int


class _ContinualEstimator:
    """What classifier and regressor share: learning, storing, and knowing their tasks."""

    problem: Problem
    scenario: Scenario

    def __init__(
        self,
        method: str = "pr-bbb",
        network: str = "mlp-100-100",
        *,
        seed: int = 0,
        standardise: bool = True,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        defaults, _ = default_settings(CUSTOM, method, network)
        given = {**(settings or {}), "seed": seed}
        self.config = build_config(defaults, given, type(self).__name__)
        self.standardise = standardise
        self.learner: ContinualLearner | None = None
        self.tasks: list[TaskInfo] = []
        self.scaling = Scaling({})

    @property
    def task_names(self) -> list[str]:
        """The learned tasks, in the order in which they were learned."""
        return [task.name for task in self.tasks]

    def _learn(self, x: Tensor, y: Tensor, info: TaskInfo, width: int, progress: bool) -> None:
        """Train on a new task; whatever goes wrong, the model stays what it was before."""
        if info.name in self.task_names:
            raise ConfigError(f"a task named {info.name!r} was learned already; choose another name (known: {', '.join(self.task_names)})")
        fresh = self.learner is None
        if self.learner is None:
            self.scaling = Scaling.of(x, y, regression=self.problem == "regression") if self.standardise else Scaling({})
            self.learner = ContinualLearner(self.config, self.problem, self.scenario, tuple(x.shape[1:]))
        before = (self.learner.facts(), {name: tensor.clone() for name, tensor in self._tensors().items()})
        observer: Observer = _terminal_progress() if progress else Silent()
        try:
            trainer = self.learner.begin_task(Split(self.scaling.x(x), self.scaling.y(y)), width)
            observer.task_begins(0, info.name, 1, 0, trainer.iterations)
            for step in trainer:
                observer.step(step._replace(task=0))
        except BaseException:
            if fresh:
                self.learner = None
            else:
                self.learner.restore(*before)
            raise
        finally:
            observer.close()
        self.learner.trainer = None  # the optimiser and the data are not needed any more
        self.tasks.append(info)

    def _tensors(self) -> dict[str, Tensor]:
        learner = self.learner
        return learner.tensors(training=False) if learner is not None and learner.num_tasks else {}

    def _trained(self) -> ContinualLearner:
        if self.learner is None or not self.tasks:
            raise NotTrainedError("no task has been learned yet; call learn_task(X, y) first")
        return self.learner

    def _task_index(self, task: TaskName) -> int:
        """A task by its name, or by its number."""
        if isinstance(task, int) and -len(self.tasks) <= task < len(self.tasks):
            return task % len(self.tasks)
        if task not in self.task_names:
            raise DataError(f"task {task!r} is unknown; the model has learned {', '.join(map(repr, self.task_names))}")
        return self.task_names.index(str(task))

    def _inputs(self, x: Inputs) -> Tensor:
        return self.scaling.x(to_inputs(x, self._trained().input_shape))

    def _choose(self, scores: Sequence[Tensor], batch_wise: int | None) -> Tensor:
        """The task of each input (N,), from every task's scores (N,)."""
        stacked = torch.stack(list(scores))  # (T, N)
        return infer_tasks(stacked) if batch_wise is None else infer_tasks_batch_wise(stacked, batch_wise)

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder (safetensors and JSON)."""
        save_model(Path(folder), self._trained(), self.tasks, self.scaling.tensors)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model that ``save`` or ``metareplay run`` wrote; it predicts the same, bit for bit."""
        stored = load_model(Path(folder))
        if stored.learner.problem != cls.problem:
            raise CheckpointError(f"{folder} holds a {stored.learner.problem} model; load it with {_CLASSES[stored.learner.problem]}")
        estimator = cls(stored.learner.config.method, stored.learner.config.network, standardise=bool(stored.scaling))
        estimator.config, estimator.learner, estimator.tasks = stored.learner.config, stored.learner, stored.tasks
        estimator.scaling = Scaling(stored.scaling)
        return estimator


_CLASSES = {"classification": "ContinualClassifier", "regression": "ContinualRegressor"}


def _terminal_progress() -> LiveProgress:
    from rich.console import Console

    return LiveProgress(Console(stderr=True))


@dataclass(frozen=True)
class ClassPrediction:
    """Everything a classifier says about some inputs, one row each. Uncertainties are entropies in nats."""

    labels: Array
    task: list[str]
    probabilities: Array
    """One column per label of ``ContinualClassifier.classes_``; labels of other tasks than the chosen one have zero."""
    total: Array
    """Total uncertainty: the entropy of the posterior predictive."""
    aleatoric: Array
    """The part that is in the data: the mean entropy of single networks."""
    epistemic: Array
    """The part that more data would remove: how much the networks differ (zero for Dirac posteriors)."""


@final
class ContinualClassifier(_ContinualEstimator):
    """Classifies inputs of several tasks learned one after another.

    >>> model = ContinualClassifier(method="pr-bbb", network="mlp-100-100", seed=0)
    >>> model.learn_task(X1, y1, name="spring")                       # doctest: +SKIP
    >>> model.predict(X)                                              # doctest: +SKIP
    """

    problem = "classification"
    scenario = Scenario.CLASS

    def learn_task(self, X: Inputs, y: Targets | None = None, *, name: str | None = None, progress: bool = False) -> Self:
        """Learn one more task from arrays, tensors or a PyTorch dataset of (input, label) pairs."""
        x, raw = inputs_and_targets(X, y, self.learner.input_shape if self.learner else None)
        labels = plain_labels(raw)
        if len(labels) != len(x):
            raise DataError(f"{len(x)} inputs but {len(labels)} labels; both need one row per example")
        classes = tuple(dict.fromkeys(_ordered(labels)))
        if len(classes) < 2:
            found = f"only {classes[0]!r}" if classes else "none"
            raise DataError(f"a classification task needs at least two classes, this one has {found}; collect examples of another class")
        position = {label: index for index, label in enumerate(classes)}
        targets = torch.tensor([position[label] for label in labels])
        self._learn(x, targets, TaskInfo(name or f"task-{len(self.tasks)}", classes), len(classes), progress)
        return self

    @property
    def classes_(self) -> list[Hashable]:
        """All labels of all tasks, in the order in which they were learned: the columns of probabilities."""
        return list(dict.fromkeys(label for task in self.tasks for label in task.classes))

    def predict_full(
        self,
        X: Inputs,
        task: TaskName | None = None,
        *,
        criterion: str = "ent",
        batch_wise: int | None = None,
    ) -> ClassPrediction:
        """Label, task, probabilities and uncertainties for each input; the task is inferred unless it is given.

        ``batch_wise=N`` infers one task for every N successive inputs, which are known to belong together.
        """
        learner, x = self._trained(), self._inputs(X)
        if task is not None:
            chosen = torch.full((len(x),), self._task_index(task))
        elif learner.model.layout is HeadLayout.GROWING:
            return self._shared_softmax(x)
        else:
            score = criterion_named(criterion, deterministic=learner.model.family.deterministic).score
            chosen = self._choose([score(self._log_probs(x, index)) for index in range(len(self.tasks))], batch_wise)
        columns = {label: index for index, label in enumerate(self.classes_)}
        probabilities = torch.zeros(len(x), len(columns), dtype=torch.float64)
        total, aleatoric = torch.zeros(2, len(x), dtype=torch.float64)
        for index in chosen.unique().tolist():
            rows = (chosen == index).nonzero().squeeze(1)
            log_probs = self._log_probs(x[rows], index)
            places = torch.tensor([columns[label] for label in self.tasks[index].classes])
            probabilities[rows.unsqueeze(1), places] = log_predictive(log_probs).exp()  # (n, C_t) into (N, all classes)
            total[rows], aleatoric[rows] = total_entropy(log_probs), expected_entropy(log_probs)
        return self._answer(probabilities, [self.tasks[index].name for index in chosen.tolist()], total, aleatoric)

    def _log_probs(self, x: Tensor, task: int) -> Tensor:
        return log_likelihoods(self._trained().evaluator.outputs(x, task))  # (S, N, C)

    def _shared_softmax(self, x: Tensor) -> ClassPrediction:
        """One softmax spans all tasks: the class names the task."""
        last = len(self.tasks) - 1
        log_probs = log_likelihoods(self._trained().evaluator.outputs(x, last, every_output=True))  # (S, N, all outputs)
        outputs = [(index, label) for index, task in enumerate(self.tasks) for label in task.classes]
        columns = {label: index for index, label in enumerate(self.classes_)}
        places = torch.tensor([columns[label] for _, label in outputs])
        by_output = log_predictive(log_probs).exp()
        probabilities = torch.zeros(len(x), len(columns), dtype=torch.float64).index_add_(1, places, by_output)
        tasks = [self.tasks[outputs[column][0]].name for column in by_output.argmax(1).tolist()]
        return self._answer(probabilities, tasks, total_entropy(log_probs), expected_entropy(log_probs))

    def _answer(self, probabilities: Tensor, tasks: list[str], total: Tensor, aleatoric: Tensor) -> ClassPrediction:
        names = self.classes_
        labels = _label_array([names[column] for column in probabilities.argmax(1).tolist()])
        epistemic = (total - aleatoric).clamp_min(0.0)  # SM eq. entropy:decomposition
        return ClassPrediction(labels, tasks, probabilities.numpy(), total.numpy(), aleatoric.numpy(), epistemic.numpy())

    def predict(self, X: Inputs, task: TaskName | None = None, *, criterion: str = "ent", batch_wise: int | None = None) -> Array:
        """The label of each input."""
        return self.predict_full(X, task, criterion=criterion, batch_wise=batch_wise).labels

    def predict_proba(
        self,
        X: Inputs,
        task: TaskName | None = None,
        *,
        criterion: str = "ent",
        batch_wise: int | None = None,
    ) -> Array:
        """Probabilities of the labels in ``classes_``: (N, number of labels)."""
        return self.predict_full(X, task, criterion=criterion, batch_wise=batch_wise).probabilities

    def predict_task(self, X: Inputs, *, criterion: str = "ent", batch_wise: int | None = None) -> list[str]:
        """The name of the task each input is taken to belong to."""
        return self.predict_full(X, criterion=criterion, batch_wise=batch_wise).task

    def score(self, X: Inputs, y: Targets | None = None, task: TaskName | None = None, *, criterion: str = "ent") -> float:
        """Share of right labels."""
        inputs, raw = inputs_and_targets(X, y, self._trained().input_shape)
        labels = plain_labels(raw)
        if len(labels) != len(inputs):
            raise DataError(f"{len(inputs)} inputs but {len(labels)} labels; both need one row per example")
        known = set(self.classes_ if task is None else self.tasks[self._task_index(task)].classes)
        if unknown := [label for label in dict.fromkeys(labels) if label not in known]:
            raise DataError(f"the label {unknown[0]!r} was never learned; known are {', '.join(map(repr, sorted(known, key=str)[:20]))}")
        found = self.predict(inputs, task, criterion=criterion)
        return float(np.mean([label == right for label, right in zip(found.tolist(), labels, strict=True)]))


@dataclass(frozen=True)
class RealPrediction:
    """Everything a regressor says about some inputs, one row each."""

    mean: Array
    std: Array
    """Standard deviation over weight samples: how little the model knows here (epistemic)."""
    task: list[str]


@final
class ContinualRegressor(_ContinualEstimator):
    """Predicts real targets of several tasks learned one after another; the task with the lowest predictive variance answers."""

    problem = "regression"
    scenario = Scenario.DOMAIN

    def learn_task(self, X: Inputs, y: Targets | None = None, *, name: str | None = None, progress: bool = False) -> Self:
        """Learn one more task from arrays, tensors or a PyTorch dataset of (input, target) pairs."""
        x, raw = inputs_and_targets(X, y, self.learner.input_shape if self.learner else None)
        targets = to_real_targets(raw)
        if len(targets) != len(x):
            raise DataError(f"{len(x)} inputs but {len(targets)} targets; both need one row per example")
        if self.learner is not None and self.learner.num_tasks and targets.shape[1] != self.learner.model.outputs:
            raise DataError(f"targets have {targets.shape[1]} columns, but this model predicts {self.learner.model.outputs}")
        self._learn(x, targets, TaskInfo(name or f"task-{len(self.tasks)}"), targets.shape[1], progress)
        return self

    def predict_full(self, X: Inputs, task: TaskName | None = None, *, batch_wise: int | None = None) -> RealPrediction:
        """Mean, standard deviation and task for each input; the task is inferred unless it is given."""
        learner, x = self._trained(), self._inputs(X)
        outputs = [learner.evaluator.outputs(x, index).double() for index in range(len(self.tasks))]  # (S, N, D) each
        if task is not None:
            chosen = torch.full((len(x),), self._task_index(task))
        elif len(self.tasks) == 1 or VARIANCE in learner.evaluator.criteria():
            chosen = self._choose([predictive_variance(values) for values in outputs], batch_wise)
        else:
            raise ConfigError(
                f"{self.config.method} cannot infer the task of a regression input: its weights do not vary; "
                "name the task, or use a Bayesian method such as pr-bbb"
            )
        mean, std = torch.stack([o.mean(0) for o in outputs]), torch.stack([o.std(0, correction=0) for o in outputs])  # (T, N, D)
        rows = torch.arange(len(x))
        names = [self.tasks[index].name for index in chosen.tolist()]
        found_mean, found_std = self.scaling.undo_y(mean[chosen, rows], std[chosen, rows])
        return RealPrediction(found_mean.numpy(), found_std.numpy(), names)

    def predict(self, X: Inputs, task: TaskName | None = None, *, batch_wise: int | None = None) -> Array:
        """The predicted mean of each input: (N, number of targets)."""
        return self.predict_full(X, task, batch_wise=batch_wise).mean

    def predict_task(self, X: Inputs, *, batch_wise: int | None = None) -> list[str]:
        """The name of the task each input is taken to belong to."""
        return self.predict_full(X, batch_wise=batch_wise).task

    def score(self, X: Inputs, y: Targets | None = None, task: TaskName | None = None) -> float:
        """Coefficient of determination R^2, the mean over targets; 1 is perfect."""
        inputs, raw = inputs_and_targets(X, y, self._trained().input_shape)
        targets = to_real_targets(raw).double().numpy()
        if len(targets) != len(inputs):
            raise DataError(f"{len(inputs)} inputs but {len(targets)} targets; both need one row per example")
        found = self.predict(inputs, task)
        spread = ((targets - targets.mean(0)) ** 2).sum(0)
        error = ((targets - found) ** 2).sum(0)
        return float(np.mean(1 - error / np.maximum(spread, 1e-12)))


def _ordered(labels: Sequence[Hashable]) -> list[Hashable]:
    """Labels sorted where they can be compared, else in the order in which they came."""
    try:
        return sorted(labels)  # type: ignore[type-var]
    except TypeError:
        return list(labels)


def _label_array(labels: Sequence[Hashable]) -> Array:
    """Labels as an array of their own type, or of objects where they differ."""
    if len({type(label) for label in labels}) == 1 and isinstance(labels[0], bool | int | float | str):
        return np.array(labels)
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array
