"""The predictor: the one way from inputs to an answer, with the task given or inferred.

Estimators, evaluation, command line and figures all ask it. A prediction changes nothing, so that several threads may ask at once.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

import torch
from torch import Tensor

from metareplay.benchmarks.base import Problem
from metareplay.errors import ConfigError
from metareplay.inference.adaptive import LOG_PREDICTIVE, Statistic, adaptive_statistics
from metareplay.inference.answers import ClassAnswer, RealAnswer
from metareplay.inference.base import Predictor, Said
from metareplay.inference.criteria.agreement import expected_entropy
from metareplay.inference.criteria.base import Contest, Criterion
from metareplay.inference.criteria.entropy import total_entropy
from metareplay.inference.predictive import WeightSamples, log_likelihoods, log_predictive

SCORED_AT_ONCE = 500
"""Inputs whose log-likelihoods are held at once: float64 needs no more memory than fits the cache."""


@final
class ClassPredictor(Predictor[ClassAnswer]):
    """Answers with classes."""

    problem = "classification"
    wanted: ClassVar[Mapping[str, Statistic]] = {
        LOG_PREDICTIVE: log_predictive,
        "total": total_entropy,
        "aleatoric": expected_entropy,
    }

    def _statistics(
        self, x: Tensor, tasks: Sequence[int], wanted: Mapping[str, Statistic], contests: Sequence[Contest]
    ) -> list[Said]:
        settings = self.settings
        if settings.adaptive is None:
            return [_of_log_likelihoods(self.outputs(x, task), wanted) for task in tasks]
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
        """Where the classes of each task stand if those of all tasks are counted one after another."""
        stops = torch.tensor([head.stop - head.start for head in self.model.heads]).cumsum(0).tolist()
        return [slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False)]

    def _answer(self, said: Sequence[Said], asked: Sequence[int], chosen: Tensor, scores: Tensor | None) -> ClassAnswer:
        columns = self._columns()
        probabilities = torch.zeros(len(chosen), columns[-1].stop, dtype=torch.float64)  # (N, C)
        for place, (task, one) in enumerate(zip(asked, said, strict=True)):
            rows = (chosen == place).nonzero().squeeze(1)
            probabilities[rows, columns[task]] = one[LOG_PREDICTIVE][rows].exp()  # (n, C_t) into (N, C)
        return ClassAnswer(
            task=torch.tensor(asked)[chosen],
            scores=scores,
            probabilities=probabilities,
            total=_picked(said, "total", chosen),
            aleatoric=_picked(said, "aleatoric", chosen),
        )

    def _of_one_softmax(self, x: Tensor) -> ClassAnswer:
        last = (
            self.model.num_tasks - 1
        )  # nobody says which task an input belongs to: batch-norm statistics are those of the last one
        known = self.model.heads[last].stop  # outputs that wait for later tasks are no classes yet
        said = _of_log_likelihoods(self.outputs(x, last, every_output=True)[..., :known], self.wanted)
        probabilities = said[LOG_PREDICTIVE].exp()  # (N, C)
        stops = torch.tensor([column.stop for column in self._columns()])
        task = torch.bucketize(
            probabilities.argmax(1), stops, right=True
        )  # the first task whose classes go beyond; (N,)
        return ClassAnswer(task=task, probabilities=probabilities, total=said["total"], aleatoric=said["aleatoric"])


def _mean(outputs: Tensor) -> Tensor:
    return outputs.double().mean(0)  # (S, N, D) -> (N, D)


def _std(outputs: Tensor) -> Tensor:
    return outputs.double().std(0, correction=0)  # (S, N, D) -> (N, D)


@final
class RealPredictor(Predictor[RealAnswer]):
    """Answers with real targets."""

    problem = "regression"
    wanted: ClassVar[Mapping[str, Statistic]] = {"mean": _mean, "std": _std}

    def _statistics(
        self, x: Tensor, tasks: Sequence[int], wanted: Mapping[str, Statistic], contests: Sequence[Contest]
    ) -> list[Said]:
        outputs = (self.outputs(x, task) for task in tasks)  # (S, N, D) each
        return [{name: statistic(values) for name, statistic in wanted.items()} for values in outputs]

    def _answer(self, said: Sequence[Said], asked: Sequence[int], chosen: Tensor, scores: Tensor | None) -> RealAnswer:
        mean, std = _picked(said, "mean", chosen), _picked(said, "std", chosen)
        return RealAnswer(task=torch.tensor(asked)[chosen], scores=scores, mean=mean, std=std)

    def criterion(self, name: str | None = None) -> Criterion:
        """The criterion with that name, or the default one; refused where it cannot tell the tasks of this model apart."""
        if self.model.family.weight_sets == 1:
            raise ConfigError(
                "the task of a regression input cannot be inferred: the weights of this model do not vary; name the task, or use a "
                "Bayesian method such as pr-bbb"
            )
        return super().criterion(name)

    def _check_choice(self, criterion: Criterion) -> None:
        if self.one_answer:
            raise ConfigError(
                "the task of a regression input cannot be inferred: all tasks of this model share one network; name the task, or use a "
                "method whose tasks have weights of their own, such as pr-bbb"
            )

    def _of_one_softmax(self, x: Tensor) -> RealAnswer:
        raise ConfigError("a softmax over all tasks has no meaning for regression; choose a method without one")


AnyPredictor = ClassPredictor | RealPredictor
PREDICTORS: Mapping[Problem, type[AnyPredictor]] = {"classification": ClassPredictor, "regression": RealPredictor}


def _picked(said: Sequence[Said], name: str, chosen: Tensor) -> Tensor:
    """What the chosen tasks (N,) say: T times (N, ...) -> (N, ...)."""
    return torch.stack([one[name] for one in said])[chosen, torch.arange(len(chosen))]


def _of_log_likelihoods(outputs: Tensor, wanted: Mapping[str, Statistic]) -> Said:
    """Statistics of the log-likelihoods of outputs (S, N, C), a few inputs at a time."""
    parts: dict[str, list[Tensor]] = {name: [] for name in wanted}
    for part in outputs.split(SCORED_AT_ONCE, dim=1):
        log_probs = log_likelihoods(part)
        for name, statistic in wanted.items():
            parts[name].append(statistic(log_probs))
    return {name: torch.cat(values) for name, values in parts.items()}
