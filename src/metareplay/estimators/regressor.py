"""Regression: real targets of several tasks learned one after another."""

from dataclasses import dataclass
from typing import Self, final

import numpy as np
import torch

from metareplay.arrays import Inputs, Targets, inputs_and_targets, to_real_targets
from metareplay.benchmarks.base import Scenario, TaskInfo
from metareplay.errors import ConfigError, DataError
from metareplay.estimators.base import Array, ContinualEstimator, TaskName
from metareplay.evaluation.evaluate import VARIANCE
from metareplay.inference.criteria import predictive_variance


@dataclass(frozen=True)
class RealPrediction:
    """Everything a regressor says about some inputs, one row each."""

    mean: Array
    std: Array
    """Standard deviation over weight samples: how little the model knows here (epistemic)."""
    task: list[str]


@final
class ContinualRegressor(ContinualEstimator):
    """Predicts real targets of several tasks learned one after another; the task with the lowest predictive variance answers."""

    problem = "regression"
    scenario = Scenario.DOMAIN
    default_network = "mlp-20-20"

    def learn_task(self, X: Inputs, y: Targets | None = None, *, name: str | None = None, progress: bool = False) -> Self:
        """Learn one more task from arrays, tensors or a PyTorch dataset of (input, target) pairs."""
        x, raw = inputs_and_targets(X, y, self.learner.input_shape if self.learner else None)
        targets = to_real_targets(raw)
        if len(targets) != len(x):
            raise DataError(f"{len(x)} inputs but {len(targets)} targets; both need one row per example")
        if self.learner is not None and self.learner.num_tasks and targets.shape[1] != self.learner.model.outputs:
            raise DataError(f"targets have {targets.shape[1]} columns, but this model predicts {self.learner.model.outputs}")
        self._learn(x, targets, TaskInfo(f"task-{len(self.tasks)}" if name is None else str(name)), targets.shape[1], progress)
        return self

    def predict_full(self, X: Inputs, task: TaskName | None = None, *, batch_wise: int | None = None) -> RealPrediction:
        """Mean, standard deviation and task for each input; the task is inferred unless it is given."""
        learner, x = self._trained(), self._inputs(X)
        outputs = [learner.evaluator.outputs(x, index).double() for index in range(len(self.tasks))]  # (S, N, D) each
        if task is not None:
            chosen = torch.full((len(x),), self._task_index(task))
        elif len(self.tasks) == 1 or VARIANCE in learner.evaluator.criteria():
            chosen = self._choose(torch.stack([predictive_variance(values) for values in outputs]), batch_wise)
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
