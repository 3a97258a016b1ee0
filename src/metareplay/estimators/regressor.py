"""Regression: real targets of several tasks learned one after another."""

from dataclasses import dataclass
from typing import Self, cast, final

import numpy as np
from torch import Tensor

from metareplay.arrays import Inputs, Targets, inputs_and_targets, to_real_targets
from metareplay.benchmarks.base import Scenario, TaskInfo
from metareplay.data.frame_examples import training_examples
from metareplay.errors import DataError
from metareplay.estimators.base import Array, TaskName
from metareplay.estimators.streaming import StreamExamples, StreamingEstimator, strange
from metareplay.estimators.task_verbs import NewExamples
from metareplay.inference.answers import RealAnswer


@dataclass(frozen=True)
class RealPrediction:
    """A regressor's predictions, one row per input: (N,), or (N, D) if there are several targets."""

    mean: Array
    std: Array
    """Standard deviation of targets: of their noise, over weight samples, and over tasks if none was given. Models
    without calibration do not know the noise."""
    task: list[str]
    task_probabilities: Array | None = None
    """Calibrated, one column per task in the order of ``task_names``; None if the task was given, or was inferred by a
    criterion without probabilities."""
    known: Array | None = None
    """Whether each input resembles those of its task (bool); None for models without task statistics."""
    epistemic: Array | None = None
    """The part of ``std`` without noise: how little the model knows here."""
    lower: Array | None = None
    """The lower end of the interval that contains 95 % of targets (``inference.coverage``); None for models without
    calibration."""
    upper: Array | None = None
    strangeness: Array | None = None
    """How unlike the inputs of its task each input is: 0 or more; above 1 it is not known. None as for ``known``."""


@final
class ContinualRegressor(StreamingEstimator):
    """Predicts real targets of several tasks learned one after another.

    The task of an input is inferred from the inputs and features of all tasks, or by the lowest predictive variance.
    Where all tasks share one network (``joint``, ``fine-tuning``), that network answers, in the name of the last task.
    """

    problem = "regression"
    scenario = Scenario.DOMAIN

    def learn_task(
        self, X: Inputs, y: Targets | None = None, *, name: str | None = None, progress: bool = False
    ) -> Self:
        """Learn one more task from arrays, tensors, a data frame or a PyTorch dataset of (input, target) pairs.

        ``y`` may be the name of a column of a data frame.
        """
        examples = self._examples(X, y)
        x, raw = inputs_and_targets(examples.x, examples.y, self._shape())
        targets = to_real_targets(raw)
        if len(targets) != len(x):
            raise DataError(f"{len(x)} inputs but {len(targets)} targets; both need one row per example")
        if self.learner is not None and self.learner.num_tasks and targets.shape[1] != self.learner.model.outputs:
            raise DataError(
                f"targets have {targets.shape[1]} columns, but this model predicts {self.learner.model.outputs}; "
                "all tasks need the same number of targets"
            )
        self._learn(
            x, targets, TaskInfo(f"task-{len(self.tasks)}" if name is None else str(name)), targets.shape[1], progress
        )
        self.inputs = examples.known
        return self

    def _new_examples(self, x: Inputs, y: Targets | None, info: TaskInfo) -> NewExamples:
        examples = training_examples(x, y, self.inputs, fresh=False)
        inputs, raw = inputs_and_targets(examples.x, examples.y, self.input_shape)
        targets = to_real_targets(raw)
        if len(targets) != len(inputs):
            raise DataError(f"{len(inputs)} inputs but {len(targets)} targets; both need one row per example")
        if targets.shape[1] != self._trained().model.outputs:
            raise DataError(
                f"targets have {targets.shape[1]} columns, but this model predicts {self._trained().model.outputs}; "
                "all tasks need the same number of targets"
            )
        return NewExamples(inputs, targets, info, targets.shape[1])

    def predict_full(
        self, X: Inputs, task: TaskName | None = None, *, criterion: str | None = None, batch_wise: int | None = None
    ) -> RealPrediction:
        """Mean, standard deviation, interval and task for each input; the task is inferred unless it is given."""
        answer = cast(RealAnswer, self._answer(X, task, criterion, batch_wise))
        undo = self.scaling.undo_y
        mean, std = (_without_single_column(part.numpy()) for part in undo(answer.mean, answer.std))
        epistemic = _without_single_column(undo(answer.mean, answer.epistemic)[1].numpy())
        ends = [
            None if end is None else _without_single_column(undo(end, answer.std)[0].numpy())
            for end in (answer.lower, answer.upper)
        ]
        about_tasks, strangeness = self._task_answer(answer), answer.strangeness
        strange_by = None if strangeness is None else strangeness.numpy()
        lower, upper = ends
        return RealPrediction(mean, std, self._names(answer), *about_tasks, epistemic, lower, upper, strange_by)

    def predict(
        self, X: Inputs, task: TaskName | None = None, *, criterion: str | None = None, batch_wise: int | None = None
    ) -> Array:
        """The predicted mean of each input: (N,), or (N, D) if there are several targets."""
        return self.predict_full(X, task, criterion=criterion, batch_wise=batch_wise).mean

    def predict_task(self, X: Inputs, *, criterion: str | None = None, batch_wise: int | None = None) -> list[str]:
        """The name of the inferred task of each input; refused where all tasks share one network."""
        name = self._trained().predictor.criterion(criterion).name if len(self.tasks) > 1 else criterion
        return self.predict_full(X, criterion=name, batch_wise=batch_wise).task

    def stream_signals(self, examples: StreamExamples, task: int) -> dict[str, Tensor]:
        answer = self._answer(examples.x, task, None, None)
        error = cast(RealAnswer, answer).mean - self.scaling.y(cast(Tensor, examples.y))  # in units of the first task
        known = None if answer.known is None else answer.known.numpy()
        return strange(known) | {"loss": 1 - (-2 * error.square().mean(1)).exp()}  # (N, D) -> (N,)

    def score(self, X: Inputs, y: Targets | None = None, task: TaskName | None = None) -> float:
        """Coefficient of determination R^2, the mean over targets; 1 is perfect."""
        inputs, raw = self._scored(X, y)
        targets = to_real_targets(raw).double().numpy()
        if len(targets) != len(inputs):
            raise DataError(f"{len(inputs)} inputs but {len(targets)} targets; both need one row per example")
        if targets.shape[1] != self._trained().model.outputs:
            raise DataError(
                f"targets have {targets.shape[1]} columns, but this model predicts {self._trained().model.outputs}"
            )
        predicted = self.predict(inputs, task).reshape(targets.shape)  # (N,) or (N, D) -> (N, D)
        spread = ((targets - targets.mean(0)) ** 2).sum(0)
        error = ((targets - predicted) ** 2).sum(0)
        return float(np.mean(1 - error / np.maximum(spread, 1e-12)))


def _without_single_column(values: Array) -> Array:
    return values[:, 0] if values.shape[1] == 1 else values  # (N, 1) -> (N,)
