"""Classification: labels of several tasks learned one after another."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self, cast, final

import numpy as np
import torch
from torch import Tensor

from metareplay.arrays import Inputs, Targets, class_labels, inputs_and_targets, plain_labels
from metareplay.benchmarks.base import Scenario, TaskInfo, label_columns
from metareplay.data.frame_examples import training_examples
from metareplay.errors import DataError
from metareplay.estimators.base import Array, TaskName
from metareplay.estimators.streaming import (
    StreamExamples,
    StreamingEstimator,
    entropy_share,
    label_signals,
    strange,
)
from metareplay.estimators.task_verbs import NewExamples
from metareplay.inference.answers import ClassAnswer
from metareplay.inference.mixing import by_label
from metareplay.learner.lone_class import refuse_lone_classes


@dataclass(frozen=True)
class ClassPrediction:
    """A classifier's predictions, one row per input. Uncertainties are entropies in nats."""

    labels: Array
    task: list[str]
    probabilities: Array
    """One column per label of ``ContinualClassifier.classes_``: calibrated, and summed over tasks if the task was not
    given. By a criterion without probabilities only the chosen task answers, and labels of other tasks have zero."""
    total: Array
    """Total uncertainty: the entropy of these probabilities."""
    aleatoric: Array
    """The part inherent in the data: the mean entropy of the individual networks, over tasks if none was given."""
    epistemic: Array
    """The rest, which more data would remove: how much networks and tasks differ, and how strange the input is."""
    task_probabilities: Array | None = None
    """Calibrated, one column per task in the order of ``task_names``; None if the task was given, or was inferred by a
    criterion without probabilities."""
    known: Array | None = None
    """Whether each input resembles those of its task (bool); None for models without task statistics."""
    strangeness: Array | None = None
    """How unlike the inputs of its task each input is: 0 or more; above 1 it is not known. None as for ``known``."""


@final
class ContinualClassifier(StreamingEstimator):
    """Classifies inputs of several tasks learned one after another.

    >>> model = ContinualClassifier(method="pr-bbb", network="mlp-100-100", seed=0)
    >>> model.learn_task(X1, y1, name="spring")                       # doctest: +SKIP
    >>> model.predict(X)                                              # doctest: +SKIP
    """

    problem = "classification"
    scenario = Scenario.CLASS

    def learn_task(
        self, X: Inputs, y: Targets | None = None, *, name: str | None = None, progress: bool = False
    ) -> Self:
        """Learn one more task from arrays, tensors, a data frame or a PyTorch dataset of (input, label) pairs.

        ``y`` may be the name of a column of a data frame.
        """
        examples = self._examples(X, y)
        x, raw = inputs_and_targets(examples.x, examples.y, self._shape())
        labels = class_labels(raw, "ContinualRegressor")
        if len(labels) != len(x):
            raise DataError(f"{len(x)} inputs but {len(labels)} labels; both need one row per example")
        info = TaskInfo(f"task-{len(self.tasks)}" if name is None else str(name), tuple(_distinct(labels)))
        classes = info.classes
        refuse_lone_classes(self.config, self.problem, self.scenario, [info])
        position = {label: index for index, label in enumerate(classes)}
        targets = torch.tensor([position[label] for label in labels])
        self._learn(x, targets, info, len(classes), progress)
        self.inputs = examples.known
        return self

    def _new_examples(self, x: Inputs, y: Targets | None, info: TaskInfo) -> NewExamples:
        examples = training_examples(x, y, self.inputs, fresh=False)
        inputs, raw = inputs_and_targets(examples.x, examples.y, self.input_shape)
        labels = class_labels(raw, "ContinualRegressor")
        if len(labels) != len(inputs):
            raise DataError(f"{len(inputs)} inputs but {len(labels)} labels; both need one row per example")
        classes = tuple(dict.fromkeys((*info.classes, *_distinct(labels))))  # new ones after the known ones
        position = {label: index for index, label in enumerate(classes)}
        targets = torch.tensor([position[label] for label in labels])
        return NewExamples(inputs, targets, info._replace(classes=classes), len(classes))

    @property
    def classes_(self) -> Array:
        """All labels of all tasks, in the order in which they were learned: the columns of probabilities."""
        return _label_array(self._labels())

    def _labels(self) -> list[Hashable]:
        return label_columns(self.tasks)[0]

    def predict_full(
        self,
        X: Inputs,
        task: TaskName | None = None,
        *,
        criterion: str | None = None,
        batch_wise: int | None = None,
    ) -> ClassPrediction:
        """Label, task, probabilities and uncertainties for each input; the task is inferred unless it is given.

        ``criterion`` says how (``metareplay list criteria``); by default
        ``stats``, or ``ent`` for models without task statistics.
        ``batch_wise=N`` infers one task for every N successive inputs, which are known to belong together.
        """
        answer = cast(ClassAnswer, self._answer(X, task, criterion, batch_wise))
        columns = torch.tensor(label_columns(self.tasks)[1])
        probabilities = by_label(answer.probabilities, columns)  # (N, classes of all tasks) -> (N, labels)
        return ClassPrediction(
            self.classes_[probabilities.argmax(1).numpy()],
            self._names(answer),
            probabilities.numpy(),
            answer.total.numpy(),
            answer.aleatoric.numpy(),
            answer.epistemic.numpy(),
            *self._task_answer(answer),
            None if answer.strangeness is None else answer.strangeness.numpy(),
        )

    def predict(
        self, X: Inputs, task: TaskName | None = None, *, criterion: str | None = None, batch_wise: int | None = None
    ) -> Array:
        """The label of each input."""
        return self.predict_full(X, task, criterion=criterion, batch_wise=batch_wise).labels

    def predict_proba(
        self,
        X: Inputs,
        task: TaskName | None = None,
        *,
        criterion: str | None = None,
        batch_wise: int | None = None,
    ) -> Array:
        """Probabilities of the labels in ``classes_``: (N, number of labels)."""
        return self.predict_full(X, task, criterion=criterion, batch_wise=batch_wise).probabilities

    def predict_task(self, X: Inputs, *, criterion: str | None = None, batch_wise: int | None = None) -> list[str]:
        """The name of the inferred task of each input."""
        return self.predict_full(X, criterion=criterion, batch_wise=batch_wise).task

    def stream_signals(self, examples: StreamExamples, task: int) -> dict[str, Tensor]:
        answer = self.predict_full(examples.x, task)
        classes, labels = len(self.tasks[task].classes), cast(list[Hashable], examples.y)
        return strange(answer.known) | {
            "uncertainty": entropy_share(torch.from_numpy(answer.total), classes),
            "loss": label_signals(labels, list(self.classes_), torch.from_numpy(answer.probabilities)),
        }

    def score(
        self, X: Inputs, y: Targets | None = None, task: TaskName | None = None, *, criterion: str | None = None
    ) -> float:
        """Accuracy: the fraction of correct labels."""
        inputs, raw = self._scored(X, y)
        labels = plain_labels(raw)
        if len(labels) != len(inputs):
            raise DataError(f"{len(inputs)} inputs but {len(labels)} labels; both need one row per example")
        known = set(self._labels() if task is None else self.tasks[self._task_index(task)].classes)
        if unknown := [label for label in dict.fromkeys(labels) if label not in known]:
            names = ", ".join(map(repr, sorted(known, key=str)[:20]))
            raise DataError(f"the label {unknown[0]!r} was never learned; known labels are {names}")
        predicted = self.predict(inputs, task, criterion=criterion)
        return float(np.mean([label == true for label, true in zip(predicted.tolist(), labels, strict=True)]))


def _distinct(labels: Sequence[Hashable]) -> list[Hashable]:
    """The different labels, sorted if they can be compared, otherwise in the order in which they came."""
    try:
        return list(dict.fromkeys(sorted(labels)))  # type: ignore[type-var]
    except TypeError:
        return list(dict.fromkeys(labels))


def _label_array(labels: Sequence[Hashable]) -> Array:
    """Labels as an array of their common type, or of objects if their types differ."""
    if len({type(label) for label in labels}) == 1 and isinstance(labels[0], bool | int | float | str):
        return np.array(labels)
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array
