"""Evaluation: accuracy with the task given, during and after training; task inference; regression errors."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from metareplay.benchmarks.base import Scenario, TaskData, TaskInfo, label_columns
from metareplay.evaluation.answers import shared_labels
from metareplay.evaluation.measures import measure_for
from metareplay.evaluation.uncertainty import count_scores, reliability
from metareplay.inference.adaptive import LOG_PREDICTIVE
from metareplay.inference.predictor import AnyPredictor, ClassPredictor
from metareplay.inference.task_inference import choose_tasks

LEAST_LOG = -87.0
"""The lowest log-probability that counts in a mean; one certain mistake would make it infinite."""


class Tested(NamedTuple):
    """One task tested with the task given."""

    score: float
    """Accuracy in percent, or mean squared error."""
    reliability: Tensor | None
    """What a reliability diagram shows (3, bins), see ``reliability``; None for regression."""
    nll: float | None = None
    """Mean negative log-probability of the right class; None for regression."""


class Inference(NamedTuple):
    """Task inference with one criterion, over all test inputs; percentages, or squared errors."""

    score: float
    """Accuracy (a wrong task is a wrong answer, unless all tasks share their classes) or mean squared error."""
    right_task: float
    batch_wise: float | None
    label_score: float | None
    """Accuracy of labels, whichever task they came from; None unless tasks share labels."""
    confusion: list[list[float]]
    """Row: the true task; column: how often each task was inferred, in percent."""
    counts: Tensor
    """Histogram of each task's scores: for the task's own inputs, then for other tasks' inputs; (2, T, bins)."""


class Row(NamedTuple):
    """The results of one criterion on one true task's inputs."""

    score: float
    right_task: float
    batch_wise: float
    label_score: float | None
    shares: list[float]
    counts: Tensor


class Evaluator:
    """Scores a predictor on test data; ``target_scale`` is what targets were divided by (D,), if they were scaled.

    ``tasks`` says which labels tasks share.
    """

    def __init__(
        self, predictor: AnyPredictor, *, target_scale: Tensor | None = None, tasks: Sequence[TaskInfo] = ()
    ) -> None:
        self.predictor, self.measure = predictor, measure_for(predictor.problem, target_scale)
        places = torch.tensor(label_columns(tasks)[1]) if shared_labels(tasks) else None
        self._labels = None if places is None else places.split([len(task.classes) for task in tasks])
        """Of each task's classes, where tasks share labels."""

    @property
    def _corrected(self) -> bool:
        """Whether means of targets are tested as answers give them, not as networks do."""
        return self.predictor.problem == "regression" and self.predictor.calibrated

    def tested(self, task: int, test: TaskData) -> Tested:
        """Score and calibration with the task given."""
        predictor = self.predictor
        if not isinstance(predictor, ClassPredictor) or not predictor.calibrated:
            calibrated = self._corrected
            statistics = predictor.statistics(test.x, [task], self.measure.statistics, calibrated=calibrated)[0]
            values = self.measure.values(statistics, test.y)
            nll = None if LOG_PREDICTIVE not in statistics else _nll(statistics[LOG_PREDICTIVE], test.y)
            return Tested(float(values.mean()), self.measure.reliability(statistics, values), nll)
        statistics, answer = predictor.tested(test.x, task, self.measure.statistics)
        confidence, chosen = answer.probabilities.max(1)
        labels = test.y + predictor.columns()[task].start
        score, nll = float(self.measure.values(statistics, test.y).mean()), _nll(answer.probabilities.log(), labels)
        return Tested(score, reliability(confidence, chosen == labels), nll)

    def given(self, task: int, test: TaskData) -> float:
        """Accuracy in percent, or mean squared error, with the task given."""
        return self.tested(task, test).score

    def raw(self, task: int, test: TaskData) -> float:
        """As ``given``, of predictions that are not calibrated, and of a task that is not yet learned as well."""
        statistics = self.predictor.statistics(test.x, [task], self.measure.statistics)[0]
        return float(self.measure.values(statistics, test.y).mean())

    def inferred_scores(self, tests: Sequence[TaskData]) -> list[float] | None:
        """Each task's score with the task inferred by default, or by one softmax; None if neither is possible."""
        predictor = self.predictor
        if isinstance(predictor, ClassPredictor) and predictor.model.layout.one_softmax:
            return self.softmax_hits(tests)
        wanted = [each for each in predictor.criteria() if each.name == predictor.default_criterion]
        criteria = [criterion for criterion in wanted if not predictor.learned_without(criterion)]
        if not criteria:
            return None
        scores, tasks = [], range(predictor.model.num_tasks)
        for true, test in enumerate(tests):
            contests = predictor.contests(criteria, test.x)
            statistics = predictor.statistics(
                test.x, tasks, self.measure.statistics, contests, calibrated=self._corrected
            )
            values = torch.stack([self.measure.values(of_task, test.y) for of_task in statistics])  # (T, N)
            scores.append(self._score(values, choose_tasks(predictor.scores(contests[0], statistics)), true))
        return scores

    def inferred(self, tests: Sequence[TaskData]) -> dict[str, Inference]:
        """All criteria on all tasks' test data: the mean over tasks of each figure."""
        predictor = self.predictor
        criteria = [criterion for criterion in predictor.criteria() if not predictor.learned_without(criterion)]
        if not criteria or not tests:
            return {}
        rows: dict[str, list[Row]] = {criterion.name: [] for criterion in criteria}
        for true, test in enumerate(tests):
            contests = predictor.contests(criteria, test.x)
            tasks = range(predictor.model.num_tasks)
            statistics = predictor.statistics(
                test.x, tasks, self.measure.statistics, contests, calibrated=self._corrected
            )
            values = torch.stack([self.measure.values(of_task, test.y) for of_task in statistics])  # (T, N)
            hits = self._label_hits(statistics, test.y, true)
            for contest in contests:
                rows[contest.criterion.name].append(
                    self._row(predictor.scores(contest, statistics), values, true, hits)
                )
        return {name: self._summary(task_rows) for name, task_rows in rows.items()}

    def _label_hits(self, statistics: Sequence[Mapping[str, Tensor]], y: Tensor, true: int) -> Tensor | None:
        """100 where a task's class has the right label (T, N); None unless tasks share labels."""
        if self._labels is None:
            return None
        classes = [of_task[LOG_PREDICTIVE].argmax(-1) for of_task in statistics]  # T times (N,)
        labels = torch.stack([of_task[chosen] for of_task, chosen in zip(self._labels, classes, strict=False)])
        return 100.0 * (labels == self._labels[true][y]).double()  # (T, N)

    def _row(self, scores: Tensor, values: Tensor, true: int, hits: Tensor | None) -> Row:
        chosen = choose_tasks(scores)  # (T, N) -> (N,)
        chosen_batch_wise = choose_tasks(scores, self.predictor.settings.batch_wise)  # (T, N) -> (N,)
        shares = 100.0 * torch.bincount(chosen, minlength=len(scores)).double() / scores.shape[1]
        score, batch_wise = self._score(values, chosen, true), self._score(values, chosen_batch_wise, true)
        label_score = None if hits is None else float(hits.gather(0, chosen.unsqueeze(0)).mean())
        return Row(score, float(shares[true]), batch_wise, label_score, shares.tolist(), count_scores(scores))

    def _score(self, values: Tensor, chosen: Tensor, true: int) -> float:
        chosen_values = values.gather(0, chosen.unsqueeze(0)).squeeze(0)  # (T, N) -> (N,)
        if self.predictor.scenario is Scenario.CLASS and self.measure.counts_hits:
            # a wrong task is a wrong answer; where tasks share their classes it may still be a correct one
            chosen_values = chosen_values * (chosen == true)
        return float(chosen_values.mean())

    def _summary(self, rows: list[Row]) -> Inference:
        batch_wise = mean([row.batch_wise for row in rows]) if self.measure.counts_hits else None
        total = torch.stack([row.counts for row in rows]).sum(0)  # (true tasks, T, bins) -> (T, bins)
        own = torch.zeros_like(total)
        for true, row in enumerate(rows):
            own[true] = row.counts[true]
        counts = torch.stack([own, total - own])  # (2, T, bins)
        score, right = mean([row.score for row in rows]), mean([row.right_task for row in rows])
        labels = [row.label_score for row in rows if row.label_score is not None]
        label_score = mean(labels) if labels else None
        return Inference(score, right, batch_wise, label_score, [row.shares for row in rows], counts)

    def shared_softmax(self, tests: Sequence[TaskData]) -> float | None:
        """Accuracy over all classes at once, if one softmax spans all tasks; otherwise None."""
        if not isinstance(self.predictor, ClassPredictor) or not self.predictor.model.layout.one_softmax:
            return None
        return mean(self.softmax_hits(tests))

    def softmax_hits(self, tests: Sequence[TaskData]) -> list[float]:
        """Accuracy of each task over all classes at once."""
        predictor, hits = cast(ClassPredictor, self.predictor), []
        for task, test in enumerate(tests):
            predicted = predictor.predict(test.x).probabilities.argmax(1)  # (N, C) -> (N,)
            hits.append(float(100.0 * (predicted == test.y + predictor.model.heads[task].start).double().mean()))
        return hits


def _nll(log_probabilities: Tensor, labels: Tensor) -> float:
    """The mean negative log-probability of these classes: (N, C), (N,) -> a number; at most that of float32's least."""
    chosen = log_probabilities.gather(1, labels.unsqueeze(1))  # (N, C) -> (N, 1)
    return float(-chosen.clamp_min(LEAST_LOG).mean())


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return sum(values) / len(values)


def during(matrix: Sequence[Sequence[float]]) -> float:
    """Mean score of each task right after it was learned: the diagonal of the matrix."""
    return mean([row[task] for task, row in enumerate(matrix)])


def final(matrix: Sequence[Sequence[float]]) -> float:
    """Mean score of all tasks after the last one."""
    return mean(matrix[-1])


def backward_transfer(matrix: Sequence[Sequence[float]]) -> float | None:
    """Mean change of the earlier tasks' scores from right after they were learned to the end."""
    earlier = len(matrix) - 1
    if earlier == 0:
        return None
    return mean([matrix[-1][task] - matrix[task][task] for task in range(earlier)])
