"""What is measured: whether classes are correct, or how far targets are off."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, final

from torch import Tensor

from metareplay.benchmarks.base import Problem
from metareplay.evaluation.uncertainty import reliability
from metareplay.inference.adaptive import LOG_PREDICTIVE, Statistic
from metareplay.inference.criteria.entropy import unlikeliness
from metareplay.inference.predictive import log_predictive


class Measure(ABC):
    """From statistics of a task's predictions for test inputs to one number per input."""

    statistics: ClassVar[Mapping[str, Statistic]]
    """The statistics it needs."""
    counts_hits: ClassVar[bool]
    """Whether answers are correct or wrong, so that the mean is a percentage."""

    @abstractmethod
    def values(self, statistics: Mapping[str, Tensor], y: Tensor) -> Tensor:
        """One number per input, whose mean is the score: (N,)."""

    def reliability(self, statistics: Mapping[str, Tensor], values: Tensor) -> Tensor | None:
        """What a reliability diagram shows (3, bins); None if answers are not correct or wrong."""
        return None


@final
class Accuracy(Measure):
    """100 for a correct class, 0 for a wrong one."""

    statistics: ClassVar[Mapping[str, Statistic]] = {LOG_PREDICTIVE: log_predictive}
    counts_hits = True

    def values(self, statistics: Mapping[str, Tensor], y: Tensor) -> Tensor:
        return 100.0 * (statistics[LOG_PREDICTIVE].argmax(-1) == y).double()  # (N, C) -> (N,)

    def reliability(self, statistics: Mapping[str, Tensor], values: Tensor) -> Tensor:
        return reliability(1.0 - unlikeliness(statistics[LOG_PREDICTIVE]), values > 0)


def _mean_output(outputs: Tensor) -> Tensor:
    return outputs.mean(0)  # (S, N, D) -> (N, D)


@final
class SquaredError(Measure):
    """The squared error, mean over targets, in the user's units."""

    statistics: ClassVar[Mapping[str, Statistic]] = {"mean": _mean_output}
    counts_hits = False

    def __init__(self, target_scale: Tensor | None = None) -> None:
        self.target_scale = target_scale

    def values(self, statistics: Mapping[str, Tensor], y: Tensor) -> Tensor:
        error = statistics["mean"].double() - y.double()
        return (error if self.target_scale is None else error * self.target_scale).square().mean(-1)  # (N, D) -> (N,)


def measure_for(problem: Problem, target_scale: Tensor | None = None) -> Measure:
    """The measure for a problem."""
    return Accuracy() if problem == "classification" else SquaredError(target_scale)
