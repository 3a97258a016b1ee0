"""The predictor: the one way from inputs to an answer, with the task given or inferred.

Estimators, evaluation, the command line and figures all use it. A prediction changes no state, so it is safe under
threads.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

import torch
from torch import Tensor

from metareplay.benchmarks.base import Problem
from metareplay.errors import ConfigError
from metareplay.inference.adaptive import LOG_PREDICTIVE, Statistic, adaptive_statistics
from metareplay.inference.answers import ClassAnswer, RealAnswer
from metareplay.inference.base import SCORED_AT_ONCE, Assigned, Predictor, Statistics
from metareplay.inference.criteria.agreement import expected_entropy
from metareplay.inference.criteria.base import Contest, Criterion
from metareplay.inference.criteria.entropy import total_entropy
from metareplay.inference.predictive import WeightSamples, log_likelihoods, log_predictive


@final
class ClassPredictor(Predictor[ClassAnswer]):
    """Predicts classes."""

    problem = "classification"
    wanted: ClassVar[Mapping[str, Statistic]] = {
        LOG_PREDICTIVE: log_predictive,
        "total": total_entropy,
        "aleatoric": expected_entropy,
    }

    def _statistics(
        self, x: Tensor, tasks: Sequence[int], wanted: Mapping[str, Statistic], contests: Sequence[Contest]
    ) -> list[Statistics]:
        settings = self.settings
        if settings.adaptive is None:
            return [_log_likelihood_statistics(self.outputs(x, task), wanted) for task in tasks]
        samples = [self._samples(task) for task in tasks]
        return adaptive_statistics(samples, x, {LOG_PREDICTIVE: log_predictive, **wanted}, contests, settings.adaptive)

    def _samples(self, task: int) -> WeightSamples:
        settings = self.settings
        return WeightSamples(
            self.model,
            task,
            settings.samples,
            generator=self._generator(task),
            columns=self.model.heads[task],
            batch_size=settings.batch_size,
            autocast=settings.autocast,
        )

    def _columns(self) -> list[slice]:
        """The columns of each task's classes when the classes of all tasks are concatenated."""
        stops = torch.tensor([head.stop - head.start for head in self.model.heads]).cumsum(0).tolist()
        return [slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False)]

    def _answer(self, assigned: Sequence[Assigned], count: int) -> ClassAnswer:
        columns = self._columns()
        probabilities = torch.zeros(count, columns[-1].stop, dtype=torch.float64)  # (N, C)
        for task, rows, statistics in assigned:
            probabilities[rows, columns[task]] = statistics[LOG_PREDICTIVE].exp()  # (n, C_t) into (N, C)
        return ClassAnswer(
            task=_tasks(assigned, count),
            probabilities=probabilities,
            total=_in_order(assigned, "total", count),
            aleatoric=_in_order(assigned, "aleatoric", count),
        )

    def _one_softmax_answer(self, x: Tensor) -> ClassAnswer:
        last = self.model.num_tasks - 1  # the task is unknown: batch-norm statistics are those of the last one
        known = self.model.heads[last].stop  # outputs reserved for later tasks are not classes yet
        statistics = _log_likelihood_statistics(self.outputs(x, last, every_output=True)[..., :known], self.wanted)
        probabilities = statistics[LOG_PREDICTIVE].exp()  # (N, C)
        stops = torch.tensor([column.stop for column in self._columns()])
        task = torch.bucketize(probabilities.argmax(1), stops, right=True)  # the task whose class it is; (N,)
        by_task = torch.stack([probabilities[:, column].sum(1) for column in self._columns()], dim=1)  # (N, T)
        return ClassAnswer(
            task=task,
            task_probabilities=by_task,
            strangeness=self._strangeness(x, task),
            probabilities=probabilities,
            total=statistics["total"],
            aleatoric=statistics["aleatoric"],
        )


def _mean(outputs: Tensor) -> Tensor:
    return outputs.double().mean(0)  # (S, N, D) -> (N, D)


def _std(outputs: Tensor) -> Tensor:
    return outputs.double().std(0, correction=0)  # (S, N, D) -> (N, D)


@final
class RealPredictor(Predictor[RealAnswer]):
    """Predicts real targets."""

    problem = "regression"
    wanted: ClassVar[Mapping[str, Statistic]] = {"mean": _mean, "std": _std}

    def _statistics(
        self, x: Tensor, tasks: Sequence[int], wanted: Mapping[str, Statistic], contests: Sequence[Contest]
    ) -> list[Statistics]:
        outputs = (self.outputs(x, task) for task in tasks)  # (S, N, D) each
        return [{name: statistic(values) for name, statistic in wanted.items()} for values in outputs]

    def _answer(self, assigned: Sequence[Assigned], count: int) -> RealAnswer:
        mean, std = _in_order(assigned, "mean", count), _in_order(assigned, "std", count)
        return RealAnswer(task=_tasks(assigned, count), mean=mean, std=std)

    def predict(
        self, x: Tensor, task: int | None = None, *, criterion: str | None = None, batch_wise: int | None = None
    ) -> RealAnswer:
        """As ``Predictor.predict``; tasks that share one network need not be told apart: it answers as the last one."""
        if task is None and criterion is None and self.one_answer:
            task = self.model.num_tasks - 1
        return super().predict(x, task, criterion=criterion, batch_wise=batch_wise)

    def criterion(self, name: str | None = None) -> Criterion:
        """The criterion with that name, or the default; refused if it cannot tell this model's tasks apart."""
        if self.model.family.weight_sets == 1 and not self.keeper.available:
            raise ConfigError(
                "the task of a regression input cannot be inferred: the weights of this model do not vary; "
                "name the task, or use a Bayesian method such as pr-bbb"
            )
        return super().criterion(name)

    def _check_choice(self, criterion: Criterion) -> None:
        if self.one_answer:
            raise ConfigError(
                "the task of a regression input cannot be inferred: all tasks of this model share one network; "
                "name the task, or use a method with separate weights for each task, such as pr-bbb"
            )

    def _one_softmax_answer(self, x: Tensor) -> RealAnswer:
        raise ConfigError("a softmax over all tasks does not apply to regression; choose a method without one")


AnyPredictor = ClassPredictor | RealPredictor
PREDICTORS: Mapping[Problem, type[AnyPredictor]] = {"classification": ClassPredictor, "regression": RealPredictor}


def _tasks(assigned: Sequence[Assigned], count: int) -> Tensor:
    """The task of each input (N,)."""
    tasks = torch.zeros(count, dtype=torch.int64)
    for task, rows, _ in assigned:
        tasks[rows] = task
    return tasks


def _in_order(assigned: Sequence[Assigned], name: str, count: int) -> Tensor:
    """A statistic of the assigned tasks, in the order of the inputs (N, ...)."""
    if not assigned:
        return torch.zeros(0, dtype=torch.float64)
    first = assigned[0].statistics[name]
    values = torch.zeros(count, *first.shape[1:], dtype=first.dtype)
    for _, rows, statistics in assigned:
        values[rows] = statistics[name]
    return values


def _log_likelihood_statistics(outputs: Tensor, wanted: Mapping[str, Statistic]) -> Statistics:
    """Statistics of the log-likelihoods of outputs (S, N, C), a few inputs at a time."""
    parts: dict[str, list[Tensor]] = {name: [] for name in wanted}
    for part in outputs.split(SCORED_AT_ONCE, dim=1):
        log_probs = log_likelihoods(part)
        for name, statistic in wanted.items():
            parts[name].append(statistic(log_probs))
    return {name: torch.cat(values) for name, values in parts.items()}
