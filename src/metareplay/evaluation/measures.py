"""What is measured of answers: whether classes are right, or how far targets are off."""

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
    """From what a task says of test inputs to a number for each."""

    statistics: ClassVar[Mapping[str, Statistic]]
    """What a task is asked."""
    counts_hits: ClassVar[bool]
    """Whether answers are right or wrong, so that the mean is a percentage."""

    @abstractmethod
    def values(self, said: Mapping[str, Tensor], y: Tensor) -> Tensor:
        """A number for each input, their mean is the score: (N,)."""

    def reliability(self, said: Mapping[str, Tensor], values: Tensor) -> Tensor | None:
        """What a reliability diagram shows (3, bins); None where answers are not right or wrong."""
        return None


@final
class Accuracy(Measure):
    """100 for a right class, 0 for a wrong one."""

    statistics: ClassVar[Mapping[str, Statistic]] = {LOG_PREDICTIVE: log_predictive}
    counts_hits = True

    def values(self, said: Mapping[str, Tensor], y: Tensor) -> Tensor:
        return 100.0 * (said[LOG_PREDICTIVE].argmax(-1) == y).double()  # (N, C) -> (N,)

    def reliability(self, said: Mapping[str, Tensor], values: Tensor) -> Tensor:
        return reliability(1.0 - unlikeliness(said[LOG_PREDICTIVE]), values > 0)


def _mean_output(outputs: Tensor) -> Tensor:
    return outputs.mean(0)  # (S, N, D) -> (N, D)


@final
class SquaredError(Measure):
    """The mean over targets of the squared error, in the user's units."""

    statistics: ClassVar[Mapping[str, Statistic]] = {"mean": _mean_output}
    counts_hits = False

    def __init__(self, target_scale: Tensor | None = None) -> None:
        self.target_scale = target_scale

    def values(self, said: Mapping[str, Tensor], y: Tensor) -> Tensor:
        error = said["mean"].double() - y.double()
        return (error if self.target_scale is None else error * self.target_scale).square().mean(-1)  # (N, D) -> (N,)


def measure_for(problem: Problem, target_scale: Tensor | None = None) -> Measure:
    """What is measured of a problem's answers."""
    return Accuracy() if problem == "classification" else SquaredError(target_scale)
