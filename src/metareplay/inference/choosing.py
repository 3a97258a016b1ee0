"""Which criteria can tell a model's tasks apart, and what they judge inputs by."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, NamedTuple, TypedDict

import torch
from torch import Tensor

from metareplay.benchmarks.base import Problem, Scenario, TaskData
from metareplay.errors import ConfigError
from metareplay.inference.criteria.base import (
    Comparison,
    Contest,
    Criterion,
    Evidence,
    FeatureRequest,
    LearnedTask,
    criteria_for,
    criterion_named,
)
from metareplay.inference.criteria.network import TASK_NETWORK
from metareplay.inference.networks import TaskNetworks
from metareplay.inference.settings import InferenceSettings
from metareplay.inference.statistics.keeper import StatisticsKeeper
from metareplay.inference.statistics.reader import NAME as STATISTICS
from metareplay.inference.statistics.settings import StatisticsSettings
from metareplay.inference.task_statistics import TaskStatistics
from metareplay.model import ContinualModel
from metareplay.seeding import generator_for
from metareplay.strategies.base import InfersTasks
from metareplay.task_maps.heads import HeadLayout


class CriterionKinds(TypedDict):
    """Of ``criteria_for``."""

    weight_sets: int | None
    auxiliary: bool
    network: bool


class _Known(NamedTuple):
    """How inputs have been compared with the tasks."""

    distances: bool
    outputs: bool
    comparison: Comparison


class TaskChooser(TaskNetworks):
    """Compares the tasks by a criterion, with what is stored about them."""

    problem: ClassVar[Problem]

    def __init__(
        self,
        model: ContinualModel,
        settings: InferenceSettings,
        statistics: StatisticsSettings | None = None,
        *,
        seed: int,
        scenario: Scenario = Scenario.CLASS,
        infers: InfersTasks | None = None,
    ) -> None:
        super().__init__(model, settings, seed)
        self.scenario, self.infers = scenario, infers
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

    def criteria(self) -> list[Criterion]:
        """The criteria that apply: none if tasks are known or share one answer, some only if weights can vary."""
        if self.scenario is Scenario.TASK or self.one_answer or self.model.layout.one_softmax:
            return []
        return criteria_for(self.problem, **self._kinds())

    def _kinds(self) -> CriterionKinds:
        """What the model has that criteria may need."""
        sets, auxiliary = self.model.family.weight_sets, any(self.model.auxiliary_outputs)
        return {"weight_sets": sets, "auxiliary": auxiliary, "network": self.has_task_network}

    @property
    def has_task_network(self) -> bool:
        """Whether a network of the model can tell all of its tasks apart."""
        return self.infers is not None and self.infers.told_apart() >= self.model.num_tasks > 0

    @property
    def one_answer(self) -> bool:
        """Whether all tasks are one network with the same outputs."""
        return self.model.task_map.one_theta and self.model.layout is HeadLayout.SINGLE

    def criterion(self, name: str | None = None) -> Criterion:
        """The criterion with that name, or the default; refused if it cannot tell this model's tasks apart."""
        name = self.default_criterion if name is None else name
        return criterion_named(name, self.problem, **self._kinds())

    @property
    def default_criterion(self) -> str:
        """By the network that infers tasks, if there is one; by statistics where all have them; else the paper's."""
        if self.has_task_network:
            return TASK_NETWORK
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
        outputs = any(criterion.reads_statistics and criterion.reads_outputs for criterion in criteria)
        comparison = self.comparison(x, distances=distances, outputs=outputs) if reads else None
        return [self._contest(criterion, x, comparison) for criterion in criteria]

    def comparison(self, x: Tensor, *, distances: bool = False, outputs: bool = True) -> Comparison:
        """Inputs compared with the statistics of all tasks."""
        memory, many = self.memory, self.model.num_tasks > self.keeper.settings.shortlist
        key = ("comparison", "" if memory is None else memory.mark(x))
        known: _Known | None = None if memory is None else memory.get(*key)
        if known is not None and known.distances >= distances and (known.outputs == outputs or not many):
            return known.comparison
        evidence = self.keeper.evidence(x, distances=distances, outputs=outputs)
        comparison = Comparison(evidence, self.keeper.combination(evidence), self.keeper.stored())
        if memory is not None:
            memory.put(*key, value=_Known(distances, outputs, comparison), numbers=evidence.numel())
        return comparison

    def remembers(self, x: Tensor) -> bool:
        """Whether these inputs have been compared with the tasks, so that their answers take little time."""
        return self.memory is not None and self.memory.get("comparison", self.memory.mark(x)) is not None

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
        log_tasks = self.log_tasks(x) if criterion.asks_network else None
        evidence = Evidence((), self.model.heads, self.settings, features, stored, log_other, comparison, log_tasks)
        return Contest(criterion, evidence)

    @torch.no_grad()
    def log_tasks(self, x: Tensor) -> Tensor:
        """log p(task | input) by the network that infers tasks: (N, ...) -> (T, N)."""
        assert self.infers is not None
        network, tasks = self.infers.task_network(), self.model.num_tasks
        parts = [network(part.to(self.model.device)).cpu() for part in x.split(self.settings.batch_size)]
        return torch.cat(parts)[:, :tasks].double().log_softmax(1).T.contiguous()  # (N, T) -> (T, N)

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
                generator_for(self.seed, f"criterion {criterion.name}", self.model.lineage.number_of(task)),
            )
            stored = criterion.fit(learned)
            if len(stored) != task + 1:
                raise ConfigError(
                    f"criterion={criterion.name!r} returned statistics of {len(stored)} tasks, "
                    f"but {task + 1} have been learned; return one entry per task"
                )
            self.task_statistics.put(criterion.name, stored)
