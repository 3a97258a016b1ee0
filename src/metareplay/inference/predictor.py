"""The predictor: the one way from inputs to an answer, with the task given or inferred.

Estimators, evaluation, command line and figures all ask it. A prediction changes nothing, so that several threads may ask at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, TypeVar, final

import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import Problem, Scenario
from metareplay.errors import ConfigError
from metareplay.inference.adaptive import LOG_PREDICTIVE, Statistic, adaptive_statistics
from metareplay.inference.answers import Answer, ClassAnswer, RealAnswer
from metareplay.inference.criteria.agreement import expected_entropy
from metareplay.inference.criteria.base import Contest, Criterion, Evidence, criteria_for, criterion_named
from metareplay.inference.criteria.entropy import total_entropy
from metareplay.inference.predictive import WeightSamples, log_likelihoods, log_predictive, predictive_outputs
from metareplay.inference.settings import InferenceSettings
from metareplay.inference.task_inference import choose_tasks
from metareplay.model import ContinualModel, HeadLayout
from metareplay.seeding import generator_for
from metareplay.task_maps.direct import SharedParameters

SCORED_AT_ONCE = 500
"""Inputs whose log-likelihoods are held at once: float64 needs no more memory than fits the cache."""

Said = dict[str, Tensor]
"""What one task says of some inputs, by the name of the statistic: (N, ...) each."""
AnyAnswer = TypeVar("AnyAnswer", bound=Answer)


class Predictor(ABC, Generic[AnyAnswer]):
    """Predicts with the same weight samples each time, so that answers differ only by what training changed."""

    problem: ClassVar[Problem]
    wanted: ClassVar[Mapping[str, Statistic]]
    """What an answer is made of."""

    def __init__(self, model: ContinualModel, settings: InferenceSettings, *, seed: int, scenario: Scenario = Scenario.CLASS) -> None:
        self.model, self.settings, self.seed, self.scenario = model, settings, seed, scenario

    # Which task: by which criterion, and the choice.

    def criteria(self) -> list[Criterion]:
        """The criteria that apply: none where tasks are known or share one answer, some only where weights can differ."""
        if self.scenario is Scenario.TASK or self.one_answer or self.model.layout.one_softmax:
            return []
        return criteria_for(self.problem, weight_sets=self.model.family.weight_sets)

    @property
    def one_answer(self) -> bool:
        """Whether all tasks are one network with the same outputs."""
        return isinstance(self.model.task_map, SharedParameters) and self.model.layout is HeadLayout.SINGLE

    def criterion(self, name: str | None = None) -> Criterion:
        """The criterion with that name, or the default one; refused where it cannot tell the tasks of this model apart."""
        name = criteria_for(self.problem)[0].name if name is None else name
        return criterion_named(name, self.problem, weight_sets=self.model.family.weight_sets)

    def contest(self, criterion: Criterion, x: Tensor) -> Contest:
        """A criterion with what it needs to judge these inputs."""
        return Contest(criterion, Evidence((), self.model.heads, self.settings))

    def predict(self, x: Tensor, task: int | None = None, *, criterion: str | None = None, batch_wise: int | None = None) -> AnyAnswer:
        """The answer to inputs (N, ...); the task is inferred by a criterion unless it is given.

        ``batch_wise`` infers one task for so many successive inputs, which are known to belong together. A given task is the only one
        that is asked.
        """
        if criterion is not None:
            self.criterion(criterion)  # a wrong name is a mistake also where no task has to be inferred
        if task is not None:
            said = self.statistics(x, [task], self.wanted)
            return self._answer(said, [task], torch.zeros(len(x), dtype=torch.int64), None)
        if self.model.layout.one_softmax:
            return self._of_one_softmax(x)
        if self.model.num_tasks == 1 and criterion is None:  # no choice, so that it needs no reason
            choose_tasks(torch.zeros(1, len(x)), batch_wise)  # refuses what is not a batch size
            return self.predict(x, 0)
        contest = self.contest(self.criterion(criterion), x)
        self._check_choice(contest.criterion)
        tasks = range(self.model.num_tasks)
        said = self.statistics(x, tasks, self.wanted, [contest])
        scores = self.scores(contest, said)  # (T, N)
        return self._answer(said, tasks, choose_tasks(scores, batch_wise), scores)

    def scores(self, contest: Contest, said: Sequence[Said]) -> Tensor:
        """The scores of all tasks, the lowest wins: (T, N)."""
        criterion = contest.criterion
        return contest.scores([] if criterion.score is None else [one[criterion.name] for one in said])

    def _check_choice(self, criterion: Criterion) -> None:
        """Refuse to infer tasks where nothing tells them apart and the answers differ."""

    # What the tasks say.

    def outputs(self, x: Tensor, task: int, *, every_output: bool = False) -> Tensor:
        """Outputs of one task's networks (S, N, C)."""
        settings = self.settings
        return predictive_outputs(
            self.model,
            x,
            task,
            settings.samples,
            generator=self._generator(task),
            batch_size=settings.batch_size,
            every_output=every_output,
            moments=settings.predictive == "moments",
            autocast=settings.autocast,
        )

    def _generator(self, task: int) -> Generator:
        return generator_for(self.seed, "evaluate", task)

    def statistics(self, x: Tensor, tasks: Sequence[int], wanted: Mapping[str, Statistic], contests: Sequence[Contest] = ()) -> list[Said]:
        """What is wanted of each task's predictive samples (S, N, C), by name (N, ...), and what the criteria score.

        The contests are those by which a task will be chosen: adaptive sampling settles their decisions, or without any the classes.
        """
        criteria = [contest.criterion for contest in contests]
        wanted = {**wanted, **{criterion.name: criterion.score for criterion in criteria if criterion.score is not None}}
        return self._statistics(x, tasks, wanted, contests)

    @abstractmethod
    def _statistics(self, x: Tensor, tasks: Sequence[int], wanted: Mapping[str, Statistic], contests: Sequence[Contest]) -> list[Said]: ...

    @abstractmethod
    def _answer(self, said: Sequence[Said], asked: Sequence[int], chosen: Tensor, scores: Tensor | None) -> AnyAnswer:
        """Put together what the chosen ones (N,) of the asked tasks say."""

    @abstractmethod
    def _of_one_softmax(self, x: Tensor) -> AnyAnswer:
        """The answer where the classes of all tasks compete: the class names the task."""


@final
class ClassPredictor(Predictor[ClassAnswer]):
    """Answers with classes."""

    problem = "classification"
    wanted: ClassVar[Mapping[str, Statistic]] = {LOG_PREDICTIVE: log_predictive, "total": total_entropy, "aleatoric": expected_entropy}

    def _statistics(self, x: Tensor, tasks: Sequence[int], wanted: Mapping[str, Statistic], contests: Sequence[Contest]) -> list[Said]:
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
        last = self.model.num_tasks - 1  # nobody says which task an input belongs to: batch-norm statistics are those of the last one
        known = self.model.heads[last].stop  # outputs that wait for later tasks are no classes yet
        said = _of_log_likelihoods(self.outputs(x, last, every_output=True)[..., :known], self.wanted)
        probabilities = said[LOG_PREDICTIVE].exp()  # (N, C)
        stops = torch.tensor([column.stop for column in self._columns()])
        task = torch.bucketize(probabilities.argmax(1), stops, right=True)  # the first task whose classes go beyond; (N,)
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

    def _statistics(self, x: Tensor, tasks: Sequence[int], wanted: Mapping[str, Statistic], contests: Sequence[Contest]) -> list[Said]:
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
