"""What predictors share for all problems: the choice of a task, and the statistics of each task's predictions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import Problem, Scenario, TaskData
from metareplay.errors import ConfigError
from metareplay.inference.adaptive import Statistic
from metareplay.inference.answers import Answer
from metareplay.inference.criteria.base import (
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


class Predictor(ABC, Generic[AnyAnswer]):
    """Predicts with the same weight samples each time, so that answers differ only by what training changed."""

    problem: ClassVar[Problem]
    wanted: ClassVar[Mapping[str, Statistic]]
    """The statistics an answer is made of."""

    def __init__(
        self, model: ContinualModel, settings: InferenceSettings, *, seed: int, scenario: Scenario = Scenario.CLASS
    ) -> None:
        self.model, self.settings, self.seed, self.scenario = model, settings, seed, scenario
        self.task_statistics = TaskStatistics()
        """What criteria stored about each task."""

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
        name = criteria_for(self.problem)[0].name if name is None else name
        model = self.model
        return criterion_named(
            name, self.problem, weight_sets=model.family.weight_sets, auxiliary=any(model.auxiliary_outputs)
        )

    def learned_without(self, criterion: Criterion) -> list[int]:
        """The tasks for which a criterion lacks the statistics it needs, e.g. because it was registered later."""
        stored = self.task_statistics.of(criterion.name, self.model.num_tasks)
        return [task for task, statistics in enumerate(stored) if criterion.fit is not None and not statistics]

    def contest(self, criterion: Criterion, x: Tensor) -> Contest:
        """A criterion with what it needs to judge these inputs."""
        request, tasks = criterion.features, range(self.model.num_tasks)
        stored = self.task_statistics.of(criterion.name, self.model.num_tasks)
        if without := self.learned_without(criterion):
            raise ConfigError(
                f"criterion={criterion.name!r} needs statistics that it stores while a task is learned, but tasks "
                f"{', '.join(map(str, without))} were learned without it; choose another criterion, or train again"
            )
        features = () if request is None else [self.features(x, task, request) for task in tasks]
        log_other = [self.log_other(x, task) for task in tasks] if criterion.needs_auxiliary else ()
        return Contest(criterion, Evidence((), self.model.heads, self.settings, features, stored, log_other))

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
                generator_for(self.seed, f"criterion {criterion.name}", task),
            )
            stored = criterion.fit(learned)
            if len(stored) != task + 1:
                raise ConfigError(
                    f"criterion={criterion.name!r} returned statistics of {len(stored)} tasks, "
                    f"but {task + 1} have been learned; return one entry per task"
                )
            self.task_statistics.put(criterion.name, stored)

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
            statistics = self.statistics(x, [task], self.wanted)
            return self._answer(statistics, [task], torch.zeros(len(x), dtype=torch.int64), None)
        if self.model.layout.one_softmax:
            return self._one_softmax_answer(x)
        if self.model.num_tasks == 1 and criterion is None:  # a single task needs no criterion
            choose_tasks(torch.zeros(1, len(x)), batch_wise)  # refuses an invalid batch size
            return self.predict(x, 0)
        contest = self.contest(self.criterion(criterion), x)
        self._check_choice(contest.criterion)
        tasks = range(self.model.num_tasks)
        statistics = self.statistics(x, tasks, self.wanted, [contest])
        scores = self.scores(contest, statistics)  # (T, N)
        return self._answer(statistics, tasks, choose_tasks(scores, batch_wise), scores)

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
        model, generator = self.model, generator_for(self.seed, "features", task)
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
        return generator_for(self.seed, "evaluate", task)

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
    def _answer(
        self, statistics: Sequence[Statistics], tasks: Sequence[int], chosen: Tensor, scores: Tensor | None
    ) -> AnyAnswer:
        """The answer of the chosen task for each input; ``chosen`` are positions in ``tasks`` (N,)."""

    @abstractmethod
    def _one_softmax_answer(self, x: Tensor) -> AnyAnswer:
        """The answer where the classes of all tasks compete: the class determines the task."""
