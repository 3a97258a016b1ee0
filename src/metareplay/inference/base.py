"""What predictors of all problems share: which task an input belongs to, and what the tasks are asked."""

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
from metareplay.inference.predictive import predictive_outputs
from metareplay.inference.settings import InferenceSettings
from metareplay.inference.task_inference import choose_tasks
from metareplay.inference.task_statistics import TaskStatistics
from metareplay.model import ContinualModel, HeadLayout
from metareplay.nets.features import layer_features
from metareplay.nets.moments import MomentsSettings
from metareplay.posteriors.families.mixture import members_of
from metareplay.seeding import generator_for
from metareplay.task_maps.direct import SharedParameters

Said = dict[str, Tensor]
"""What one task says of some inputs, by the name of the statistic: (N, ...) each."""
AnyAnswer = TypeVar("AnyAnswer", bound=Answer)


class Predictor(ABC, Generic[AnyAnswer]):
    """Predicts with the same weight samples each time, so that answers differ only by what training changed."""

    problem: ClassVar[Problem]
    wanted: ClassVar[Mapping[str, Statistic]]
    """What an answer is made of."""

    def __init__(
        self, model: ContinualModel, settings: InferenceSettings, *, seed: int, scenario: Scenario = Scenario.CLASS
    ) -> None:
        self.model, self.settings, self.seed, self.scenario = model, settings, seed, scenario
        self.task_statistics = TaskStatistics()
        """What criteria stored of each task."""

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

    def learned_without(self, criterion: Criterion) -> list[int]:
        """The tasks of which a criterion stored nothing although it needs to, e.g. because it was registered later."""
        stored = self.task_statistics.of(criterion.name, self.model.num_tasks)
        return [task for task, of_task in enumerate(stored) if criterion.fit is not None and not of_task]

    def contest(self, criterion: Criterion, x: Tensor) -> Contest:
        """A criterion with what it needs to judge these inputs."""
        request, tasks = criterion.features, range(self.model.num_tasks)
        stored = self.task_statistics.of(criterion.name, self.model.num_tasks)
        if without := self.learned_without(criterion):
            raise ConfigError(
                f"criterion={criterion.name!r} needs what it stores of each task while the task is learned, and tasks "
                f"{', '.join(map(str, without))} were learned without it; choose another criterion, or learn again"
            )
        features = () if request is None else [self.features(x, task, request) for task in tasks]
        return Contest(criterion, Evidence((), self.model.heads, self.settings, features, stored))

    def fit_criteria(self, task: int, data: TaskData) -> None:
        """Let the criteria that apply store what they need of a task that has just been learned, and update what they have of others."""
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
                    f"criterion={criterion.name!r} stored something of {len(stored)} tasks, not of all {task + 1} so far"
                )
            self.task_statistics.put(criterion.name, stored)

    def predict(
        self, x: Tensor, task: int | None = None, *, criterion: str | None = None, batch_wise: int | None = None
    ) -> AnyAnswer:
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
            moments=isinstance(settings, MomentsSettings) and settings.predictive == "moments",
            autocast=settings.autocast,
        )

    def features(self, x: Tensor, task: int, request: FeatureRequest) -> Features:
        """Features of inputs in the networks of a task, always under the same weight samples: (S, N, F) by layer."""
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
    ) -> list[Said]:
        """What is wanted of each task's predictive samples (S, N, C), by name (N, ...), and what the criteria score.

        The contests are those by which a task will be chosen: adaptive sampling settles their decisions, or without any the classes.
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
    ) -> list[Said]: ...

    @abstractmethod
    def _answer(self, said: Sequence[Said], asked: Sequence[int], chosen: Tensor, scores: Tensor | None) -> AnyAnswer:
        """Put together what the chosen ones (N,) of the asked tasks say."""

    @abstractmethod
    def _of_one_softmax(self, x: Tensor) -> AnyAnswer:
        """The answer where the classes of all tasks compete: the class names the task."""
