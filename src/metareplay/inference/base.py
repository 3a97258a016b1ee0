"""What predictors share for all problems: the choice of a task, and the statistics of each task's predictions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import Problem, Scenario, TaskData
from metareplay.errors import ConfigError
from metareplay.inference.adaptive import Statistic
from metareplay.inference.answers import Answer
from metareplay.inference.criteria.base import (
    Comparison,
    Contest,
    Criterion,
    Evidence,
    FeatureRequest,
    Features,
    LearnedTask,
    criteria_for,
    criterion_named,
)
from metareplay.inference.predictive import log_likelihoods, log_predictive, predictive_outputs
from metareplay.inference.settings import InferenceSettings
from metareplay.inference.statistics.keeper import NAME as STATISTICS
from metareplay.inference.statistics.keeper import StatisticsKeeper
from metareplay.inference.statistics.settings import StatisticsSettings
from metareplay.inference.task_inference import choose_tasks
from metareplay.inference.task_statistics import TaskStatistics
from metareplay.model import ContinualModel, HeadLayout
from metareplay.nets.features import layer_features
from metareplay.nets.moments import MomentsSettings
from metareplay.posteriors.families.mixture import members_of
from metareplay.seeding import generator_for

Statistics = dict[str, Tensor]
"""Statistics of one task's predictions for some inputs, by name: (N, ...) each."""
AnyAnswer = TypeVar("AnyAnswer", bound=Answer)

SCORED_AT_ONCE = 500
"""Inputs whose log-likelihoods are held at once, so that they fit the cache in float64."""


class Assigned(NamedTuple):
    """The inputs that were assigned to one task, and the statistics of its predictions for them."""

    task: int
    rows: Tensor
    """Indices of the inputs (n,)."""
    statistics: Statistics


class Predictor(ABC, Generic[AnyAnswer]):
    """Predicts with the same weight samples each time, so that answers differ only by what training changed."""

    problem: ClassVar[Problem]
    wanted: ClassVar[Mapping[str, Statistic]]
    """The statistics an answer is made of."""

    def __init__(
        self,
        model: ContinualModel,
        settings: InferenceSettings,
        *,
        seed: int,
        scenario: Scenario = Scenario.CLASS,
        statistics: StatisticsSettings | None = None,
    ) -> None:
        self.model, self.settings, self.seed, self.scenario = model, settings, seed, scenario
        self.task_statistics = TaskStatistics()
        """What criteria stored about each task."""
        self.keeper = StatisticsKeeper(
            model,
            statistics or StatisticsSettings(),
            self.task_statistics,
            problem=self.problem,
            seed=seed,
            batch_size=settings.batch_size,
        )
        """What is stored about every task, whatever the criterion."""

    # The choice of a task, and the criterion for it.

    def criteria(self) -> list[Criterion]:
        """The criteria that apply: none if tasks are known or share one answer, some only if weights can vary."""
        if self.scenario is Scenario.TASK or self.one_answer or self.model.layout.one_softmax:
            return []
        auxiliary = any(self.model.auxiliary_outputs)
        return criteria_for(self.problem, weight_sets=self.model.family.weight_sets, auxiliary=auxiliary)

    @property
    def one_answer(self) -> bool:
        """Whether all tasks are one network with the same outputs."""
        return self.model.task_map.one_theta and self.model.layout is HeadLayout.SINGLE

    def criterion(self, name: str | None = None) -> Criterion:
        """The criterion with that name, or the default; refused if it cannot tell this model's tasks apart."""
        name = self.default_criterion if name is None else name
        model = self.model
        return criterion_named(
            name, self.problem, weight_sets=model.family.weight_sets, auxiliary=any(model.auxiliary_outputs)
        )

    @property
    def default_criterion(self) -> str:
        """By statistics where all tasks have them, else the paper's."""
        paper = next(criterion for criterion in criteria_for(self.problem) if not criterion.reads_statistics)
        return "stats" if self.keeper.available else paper.name

    def learned_without(self, criterion: Criterion) -> list[int]:
        """The tasks for which a criterion lacks the statistics it needs, e.g. because it was registered later."""
        name = STATISTICS if criterion.reads_statistics else criterion.name
        needs = criterion.reads_statistics or criterion.fit is not None
        stored = self.task_statistics.of(name, self.model.num_tasks)
        return [task for task, statistics in enumerate(stored) if needs and not statistics]

    def contests(self, criteria: Sequence[Criterion], x: Tensor) -> list[Contest]:
        """Criteria with what they need to judge these inputs; the comparison with statistics is made once."""
        reads = any(criterion.reads_statistics and not self.learned_without(criterion) for criterion in criteria)
        distances = any(criterion.reads_distances for criterion in criteria)
        comparison = self.comparison(x, distances=distances) if reads else None
        return [self._contest(criterion, x, comparison) for criterion in criteria]

    def comparison(self, x: Tensor, *, distances: bool = False) -> Comparison:
        """Inputs compared with the statistics of all tasks."""
        evidence = self.keeper.evidence(x, distances=distances)
        return Comparison(evidence, self.keeper.combination(evidence), self.keeper.stored())

    def _contest(self, criterion: Criterion, x: Tensor, comparison: Comparison | None) -> Contest:
        request, tasks = criterion.features, range(self.model.num_tasks)
        stored = self.task_statistics.of(criterion.name, self.model.num_tasks)
        if without := self.learned_without(criterion):
            raise ConfigError(
                f"criterion={criterion.name!r} needs statistics that are stored while a task is learned, but tasks "
                f"{', '.join(map(str, without))} were learned without them; choose another criterion, or train again"
            )
        features = () if request is None else [self.features(x, task, request) for task in tasks]
        log_other = [self.log_other(x, task) for task in tasks] if criterion.needs_auxiliary else ()
        evidence = Evidence((), self.model.heads, self.settings, features, stored, log_other, comparison)
        return Contest(criterion, evidence)

    def fit_criteria(self, task: int, data: TaskData) -> None:
        """Let the criteria that apply store statistics of a task just learned, and update those of earlier tasks."""
        for criterion in self.criteria():
            if criterion.fit is None:
                continue
            learned = LearnedTask(
                self.model,
                task,
                data,
                self.settings,
                self.task_statistics.of(criterion.name, task),
                partial(self.features, request=criterion.features or FeatureRequest()),
                generator_for(self.seed, f"criterion {criterion.name}", self._number(task)),
            )
            stored = criterion.fit(learned)
            if len(stored) != task + 1:
                raise ConfigError(
                    f"criterion={criterion.name!r} returned statistics of {len(stored)} tasks, "
                    f"but {task + 1} have been learned; return one entry per task"
                )
            self.task_statistics.put(criterion.name, stored)

    def remove_task(self, task: int) -> None:
        """Forget what is stored about a task that the model no longer has."""
        self.keeper.remove_task(task)
        self.task_statistics.drop(task)

    def predict(
        self, x: Tensor, task: int | None = None, *, criterion: str | None = None, batch_wise: int | None = None
    ) -> AnyAnswer:
        """The answer to inputs (N, ...); the task is inferred by a criterion unless it is given.

        ``batch_wise`` infers one task for this many successive inputs, which are known to belong together. If the task
        is given, only its networks are evaluated.
        """
        if criterion is not None:
            self.criterion(criterion)  # an unknown name is an error even where no task has to be inferred
        if task is not None:
            return self._given(x, task)
        if self.model.layout.one_softmax:
            return self._one_softmax_answer(x)
        if self.model.num_tasks == 1 and criterion is None:  # a single task needs no criterion
            choose_tasks(torch.zeros(1, len(x)), batch_wise)  # refuses an invalid batch size
            return replace(self._given(x, 0), task_probabilities=torch.ones(len(x), 1, dtype=torch.float64))
        contest = self.contests([self.criterion(criterion)], x)[0]
        self._check_choice(contest.criterion)
        return self._inferred(x, contest, batch_wise)

    def _given(self, x: Tensor, task: int) -> AnyAnswer:
        """The answer of one task's networks."""
        rows = torch.arange(len(x))
        answer = self._answer([Assigned(task, rows, self.statistics(x, [task], self.wanted)[0])], len(x))
        return replace(answer, strangeness=self.keeper.strangeness_to(task, x) if self.keeper.available else None)

    def _inferred(self, x: Tensor, contest: Contest, batch_wise: int | None) -> AnyAnswer:
        """The answer of the task chosen for each input; unless tasks are compared by them, only that one is sampled."""
        tasks = range(self.model.num_tasks)
        if contest.needs_outputs:
            statistics = self.statistics(x, tasks, self.wanted, [contest])
            scores = self.scores(contest, statistics)  # (T, N)
            chosen = choose_tasks(scores, batch_wise)
            assigned = [
                Assigned(task, rows, {name: values[rows] for name, values in statistics[task].items()})
                for task in tasks
                if len(rows := (chosen == task).nonzero().squeeze(1))
            ]
        else:
            scores = contest.scores()  # (T, N)
            chosen = choose_tasks(scores, batch_wise)
            assigned = [
                Assigned(task, rows, self.statistics(x[rows], [task], self.wanted)[0])
                for task in tasks
                if len(rows := (chosen == task).nonzero().squeeze(1))
            ]
        if not assigned:  # no inputs
            assigned = [Assigned(0, chosen, self.statistics(x, [0], self.wanted)[0])]
        answer = self._answer(assigned, len(x))
        probabilities = contest.probabilities(scores) if batch_wise is None else None
        return replace(
            answer, scores=scores, task_probabilities=probabilities, strangeness=self._strangeness(x, chosen, contest)
        )

    def _strangeness(self, x: Tensor, tasks: Tensor, contest: Contest | None = None) -> Tensor | None:
        """How strange inputs are to the tasks they were assigned to (N,); None without statistics."""
        if not self.keeper.available:
            return None
        compared = None if contest is None else contest.evidence.comparison
        evidence = self.keeper.evidence(x, distances=False) if compared is None else compared.evidence
        return self.keeper.strangeness(evidence, tasks)

    def scores(self, contest: Contest, statistics: Sequence[Statistics]) -> Tensor:
        """The scores of all tasks, the lowest wins: (T, N)."""
        criterion = contest.criterion
        return contest.scores([] if criterion.score is None else [values[criterion.name] for values in statistics])

    def _check_choice(self, criterion: Criterion) -> None:
        """Refuse to infer tasks where nothing tells them apart and their answers differ."""

    # Each task's predictions.

    def outputs(self, x: Tensor, task: int, *, every_output: bool = False) -> Tensor:
        """Outputs of one task's networks (S, N, C), with ``every_output`` those of all heads."""
        settings = self.settings
        return predictive_outputs(
            self.model,
            x,
            task,
            settings.samples,
            generator=self._generator(task),
            batch_size=settings.batch_size,
            every_output=every_output,
            moments=isinstance(settings, MomentsSettings) and settings.predictive == "moments",
            autocast=settings.autocast,
        )

    def log_other(self, x: Tensor, task: int) -> Tensor:
        """log p(none of the task's classes): the probability of all its auxiliary outputs, -inf without any; (N,)."""
        head, columns = self.model.heads[task], self.model.training_columns(task)
        outputs = self.outputs(x, task, every_output=True)[..., columns]  # (S, N, C + A)
        parts = [log_predictive(log_likelihoods(part)) for part in outputs.split(SCORED_AT_ONCE, dim=1)]
        return torch.cat(parts)[:, head.stop - head.start :].logsumexp(1)  # (N, C + A) -> (N, A) -> (N,)

    def features(self, x: Tensor, task: int, request: FeatureRequest) -> Features:
        """Features of inputs in a task's networks, always with the same weight samples: (S, N, F) by layer."""
        model, generator = self.model, generator_for(self.seed, "features", self._number(task))
        posterior = model.posterior(task)
        members = members_of(posterior)[1]
        with torch.no_grad():
            samples = model.family.weight_sets or ceil(request.samples / members) * members
            weights = posterior.rsample(samples, generator=generator)  # (S, W)
        return layer_features(
            model.network,
            model.spec,
            weights,
            x,
            model.buffers(task),
            layers=request.layers,
            pooled=request.pooled,
            batch_size=self.settings.batch_size,
            generator=generator,
        )

    def _generator(self, task: int) -> Generator:
        return generator_for(self.seed, "evaluate", self._number(task))

    def _number(self, task: int) -> int:
        """The number by which a task's random numbers are drawn: its answers stay when an earlier task is removed."""
        return self.model.lineage.number_of(task)

    def statistics(
        self, x: Tensor, tasks: Sequence[int], wanted: Mapping[str, Statistic], contests: Sequence[Contest] = ()
    ) -> list[Statistics]:
        """The wanted statistics of each task's predictive samples (S, N, C), by name (N, ...), and its scores.

        The contests are those by which a task will be chosen: adaptive sampling settles their decisions, or the classes
        if there are none.
        """
        criteria = [contest.criterion for contest in contests]
        wanted = {
            **wanted,
            **{criterion.name: criterion.score for criterion in criteria if criterion.score is not None},
        }
        return self._statistics(x, tasks, wanted, contests)

    @abstractmethod
    def _statistics(
        self, x: Tensor, tasks: Sequence[int], wanted: Mapping[str, Statistic], contests: Sequence[Contest]
    ) -> list[Statistics]: ...

    @abstractmethod
    def _answer(self, assigned: Sequence[Assigned], count: int) -> AnyAnswer:
        """The answers of the tasks to which inputs were assigned, in the order of the ``count`` inputs."""

    @abstractmethod
    def _one_softmax_answer(self, x: Tensor) -> AnyAnswer:
        """The answer where the classes of all tasks compete: the class determines the task."""
