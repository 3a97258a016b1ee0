"""What predictors share for all problems: the choice of a task, and the statistics of each task's predictions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from metareplay.benchmarks.base import TaskData, TaskInfo, label_columns
from metareplay.inference.adaptive import Statistic
from metareplay.inference.answers import Answer
from metareplay.inference.calibration.pooling import MOST, POOLING, most_probable_gain
from metareplay.inference.calibration.strange import unknown_share
from metareplay.inference.calibration.taking import CALIBRATION
from metareplay.inference.choosing import TaskChooser
from metareplay.inference.criteria.base import Contest, Criterion
from metareplay.inference.mixing import alone, questions, shares
from metareplay.inference.statistics.evidence import Stored
from metareplay.inference.task_inference import choose_tasks
from metareplay.seeding import generator_for

Statistics = dict[str, Tensor]
"""Statistics of one task's predictions for some inputs, by name: (N, ...) each."""
AnyAnswer = TypeVar("AnyAnswer", bound=Answer)


class Assigned(NamedTuple):
    """The inputs about which one task was asked, and the statistics of its predictions for them."""

    task: int
    rows: Tensor
    """Indices of the inputs (n,)."""
    statistics: Statistics
    share: Tensor
    """What these predictions count for in the answer (n,)."""


class Context(NamedTuple):
    """What an answer needs besides the predictions of single tasks."""

    chosen: Tensor
    """The task of each input (N,)."""
    labels: Tensor | None = None
    """The label of each class of each task, in task order (C,): tasks may share labels; None if they do not."""
    alone: bool = False
    """Whether the task was given or chosen for good, so that no other is possible."""
    unknown: Tensor | None = None
    """How far each answer is replaced by what is known without the input (N,); None: as published, not calibrated."""


class Pooled(NamedTuple, Generic[AnyAnswer]):
    """The mixed answer of a task's rivals to its own examples."""

    answer: AnyAnswer
    shares: Tensor
    """What each task counts for (N, T)."""
    weight: Tensor
    """The probability that an example is not of its own task, so that mixed answers matter (N,)."""


class Predictor(TaskChooser, ABC, Generic[AnyAnswer]):
    """Predicts with the same weight samples each time, so that answers differ only by what training changed."""

    wanted: ClassVar[Mapping[str, Statistic]]
    """The statistics an answer is made of."""
    caution: ClassVar[float]
    """How improbable it is that mixed answers are more certain than their parts."""

    # What a task's predictions are corrected by.

    def calibrate(self, task: int, used: TaskData, held_out: TaskData) -> None:
        """Learn from examples that training did not use how far a task's predictions can be relied on."""
        if self.settings.calibrate and self.keeper.settings.collect:
            stored = list(self.task_statistics.of(CALIBRATION, self.model.num_tasks))
            stored[task] = self._calibration(task, used, held_out)
            self.task_statistics.put(CALIBRATION, stored)

    def calibrate_mixing(self, task: int, data: TaskData, tasks: Sequence[TaskInfo]) -> None:
        """Learn from a task's examples, which other tasks' networks have not seen, how certain mixed answers are.

        ``tasks`` are all tasks with their classes, or none if that is not known; without common labels they are never
        pooled.
        """
        labels = torch.tensor(label_columns(tasks)[1]) if self.problem == "classification" else None
        never = labels is not None and len(labels.unique()) == len(labels)
        if never or self.model.num_tasks < 3 or not (self.calibrated and self.criteria()):
            return
        generator = generator_for(self.seed, POOLING, self.model.lineage.number_of(task))
        rows = torch.randperm(len(data.x), generator=generator)[:MOST]
        x, y = data.x[rows], data.y[rows]
        contest = self.contests([self.criterion()], x)[0]
        probabilities = None if contest.needs_outputs else contest.probabilities(contest.scores())  # (N, T)
        if probabilities is None:
            return
        others = probabilities.clamp_min(1e-300).index_fill(1, torch.tensor([task]), 0.0)  # (N, T)
        chosen = others.argmax(1)
        asked = shares(others / others.sum(1, keepdim=True), chosen)  # (N, T)
        context = Context(chosen, unknown=torch.zeros(len(x), dtype=torch.float64))
        pooled = Pooled(self._asked(x, asked, context, None), asked, 1 - probabilities[:, task])
        stored = list(self.task_statistics.of(CALIBRATION, self.model.num_tasks))
        stored[task] = {**stored[task], POOLING: self._pooling_evidence(pooled, y, task, labels)}
        self.task_statistics.put(CALIBRATION, stored)

    def pooling_gain(self) -> Tensor:
        """How much more certain mixed answers are than the mean of their parts ()."""
        stored = self.task_statistics.of(CALIBRATION, self.model.num_tasks)
        return most_probable_gain((of_task[POOLING] for of_task in stored if POOLING in of_task), self.caution)

    @property
    def calibrated(self) -> bool:
        """Whether answers are mixed and calibrated; otherwise they are computed as published."""
        stored = self.task_statistics.of(CALIBRATION, self.model.num_tasks)
        return self.settings.calibrate and self.keeper.available and all(stored)

    # Answers.

    def remove_task(self, task: int) -> None:
        """Forget what is stored about a task that the model no longer has."""
        self.keeper.remove_task(task)
        self.task_statistics.drop(task)

    def predict(
        self,
        x: Tensor,
        task: int | None = None,
        *,
        criterion: str | None = None,
        batch_wise: int | None = None,
        labels: Tensor | None = None,
    ) -> AnyAnswer:
        """The answer to inputs (N, ...); the task is inferred by a criterion unless it is given.

        ``batch_wise`` infers one task for this many successive inputs, which are known to belong together. If the task
        is given, only its networks are evaluated. ``labels`` names the label of each class of each task (C,), for
        uncertainties about labels that tasks share.
        """
        if labels is not None and len(labels.unique()) == len(labels):
            labels = None
        if criterion is not None:
            self.criterion(criterion)  # an unknown name is an error even where no task has to be inferred
        if task is not None:
            return self._given(x, task, labels)
        if self.model.layout.one_softmax:
            return self._one_softmax_answer(x, labels)
        if self.model.num_tasks == 1 and criterion is None:  # a single task needs no criterion
            choose_tasks(torch.zeros(1, len(x)), batch_wise)  # refuses an invalid batch size
            return replace(self._given(x, 0, labels), task_probabilities=torch.ones(len(x), 1, dtype=torch.float64))
        contest = self.contests([self.criterion(criterion)], x)[0]
        self._check_choice(contest.criterion)
        return self._inferred(x, contest, batch_wise, labels)

    def _given(self, x: Tensor, task: int, labels: Tensor | None) -> AnyAnswer:
        """The answer of one task's networks."""
        chosen = torch.full((len(x),), task)
        strangeness = self.keeper.strangeness_to(task, x) if self.keeper.available else None
        return self._asked(x, alone(chosen, self.model.num_tasks), Context(chosen, labels, alone=True), strangeness)

    def _inferred(self, x: Tensor, contest: Contest, batch_wise: int | None, labels: Tensor | None) -> AnyAnswer:
        """The answer of the task chosen for each input, or of all that are probable; only these are sampled.

        Criteria that compare tasks by weight samples have drawn them already: the answer is that of the chosen task.
        """
        tasks = self.model.num_tasks
        if contest.needs_outputs:
            statistics = self.statistics(x, range(tasks), self.wanted, [contest])
            scores = self.scores(contest, statistics)  # (T, N)
            chosen = choose_tasks(scores, batch_wise)
            assigned = [
                Assigned(rows.task, rows.rows, {key: values[rows.rows] for key, values in of_task.items()}, rows.share)
                for rows in questions(alone(chosen, tasks), chosen, self.settings.samples)
                for of_task in [statistics[rows.task]]
            ]
            answer = self._answer(assigned, Context(chosen, labels))
            return replace(answer, scores=scores, strangeness=self._strangeness(x, chosen, contest))
        scores = contest.scores()  # (T, N)
        chosen = choose_tasks(scores, batch_wise)
        probabilities = contest.probabilities(scores) if batch_wise is None else None
        mixes = self.calibrated and probabilities is not None
        asked = shares(probabilities, chosen) if mixes and probabilities is not None else alone(chosen, tasks)
        strangeness = self._strangeness(x, chosen, contest)
        answer = self._asked(x, asked, Context(chosen, labels, alone=not mixes), strangeness)
        return replace(answer, scores=scores, task_probabilities=self._with_doubt(probabilities, strangeness))

    def _asked(self, x: Tensor, asked: Tensor, context: Context, strangeness: Tensor | None) -> AnyAnswer:
        """The answer of the tasks that are asked about each input (N, T), corrected where they are calibrated."""
        calibrated = self.calibrated
        if calibrated and strangeness is not None:
            context = context._replace(unknown=unknown_share(strangeness))
        assigned = [
            Assigned(
                question.task,
                question.rows,
                self._of_answer(x[question.rows], question.task, calibrated=calibrated, samples=question.samples),
                question.share,
            )
            for question in questions(asked, context.chosen, self.settings.samples)
        ]
        if not assigned:  # no inputs
            nothing = self.statistics(x, [0], self.wanted)[0]
            assigned = [Assigned(0, context.chosen, nothing, torch.zeros(0, dtype=torch.float64))]
        return replace(self._answer(assigned, context), strangeness=strangeness)

    def _of_answer(self, x: Tensor, task: int, *, calibrated: bool, samples: int | None) -> Statistics:
        """The statistics that one task contributes to answers; computed once while results are remembered."""
        memory = self.memory
        key = () if memory is None else ("answer", task, calibrated, samples, memory.mark(x))
        known: Statistics | None = None if memory is None else memory.get(*key)
        if known is not None:
            return known
        found = self.statistics(x, [task], self.wanted, calibrated=calibrated, samples=samples)[0]
        if memory is not None:
            memory.put(*key, value=found, numbers=sum(values.numel() for values in found.values()))
        return found

    def _with_doubt(self, probabilities: Tensor | None, strangeness: Tensor | None) -> Tensor | None:
        """Probabilities of the tasks (N, T), which become equal far from all of them."""
        if probabilities is None or strangeness is None or not self.calibrated:
            return probabilities
        unknown = unknown_share(strangeness).unsqueeze(1)  # (N, 1)
        return (1 - unknown) * probabilities + unknown / probabilities.shape[1]

    def _strangeness(self, x: Tensor, tasks: Tensor, contest: Contest | None = None) -> Tensor | None:
        """How strange inputs are to the tasks they were assigned to (N,); None without statistics."""
        if not self.keeper.available:
            return None
        compared = None if contest is None else contest.evidence.comparison
        evidence = self.keeper.evidence(x, distances=False, outputs=False) if compared is None else compared.evidence
        return self.keeper.strangeness(evidence, tasks, x)

    def scores(self, contest: Contest, statistics: Sequence[Statistics]) -> Tensor:
        """The scores of all tasks, the lowest wins: (T, N)."""
        criterion = contest.criterion
        return contest.scores([] if criterion.score is None else [values[criterion.name] for values in statistics])

    def _check_choice(self, criterion: Criterion) -> None:
        """Refuse to infer tasks where nothing tells them apart and their answers differ."""

    def statistics(
        self,
        x: Tensor,
        tasks: Sequence[int],
        wanted: Mapping[str, Statistic],
        contests: Sequence[Contest] = (),
        *,
        calibrated: bool = False,
        samples: int | None = None,
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
        return self._statistics(x, tasks, wanted, contests, calibrated=calibrated, samples=samples)

    @abstractmethod
    def _statistics(
        self,
        x: Tensor,
        tasks: Sequence[int],
        wanted: Mapping[str, Statistic],
        contests: Sequence[Contest],
        *,
        calibrated: bool,
        samples: int | None,
    ) -> list[Statistics]: ...

    @abstractmethod
    def _calibration(self, task: int, used: TaskData, held_out: TaskData) -> Stored:
        """What is stored to correct a task's predictions; never empty."""

    @abstractmethod
    def _pooling_evidence(self, pooled: Pooled[AnyAnswer], y: Tensor, task: int, labels: Tensor | None) -> Tensor:
        """How probable the targets of a task's examples make every gain of mixed answers (G,)."""

    @abstractmethod
    def _answer(self, assigned: Sequence[Assigned], context: Context) -> AnyAnswer:
        """The answers of the tasks that were asked, in the order of the inputs."""

    @abstractmethod
    def _one_softmax_answer(self, x: Tensor, labels: Tensor | None) -> AnyAnswer:
        """The answer where the classes of all tasks compete: the class determines the task."""


def in_order(assigned: Sequence[Assigned], name: str, count: int) -> Tensor:
    """The mean of a statistic over the tasks that were asked, in the order of the inputs (N, ...)."""
    first = assigned[0].statistics[name]
    values = torch.zeros(count, *first.shape[1:], dtype=first.dtype)
    for _, rows, statistics, share in assigned:
        values[rows] += share.reshape(-1, *(1 for _ in first.shape[1:])) * statistics[name]
    return values


def shares_of(assigned: Sequence[Assigned], count: int, tasks: int) -> Tensor:
    """What each task counts for in each of ``count`` answers (N, T)."""
    found = torch.zeros(count, tasks, dtype=torch.float64)
    for task, rows, _, share in assigned:
        found[rows, task] += share
    return found
