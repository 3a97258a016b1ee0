"""Evaluation: accuracy with the task given, during and after training; task inference; regression errors."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.evaluation.uncertainty import count_scores, reliability
from metareplay.inference.adaptive import LOG_PREDICTIVE, Statistic, adaptive_statistics
from metareplay.inference.criteria import CRITERIA, Criterion, predictive_variance
from metareplay.inference.predictive import WeightSamples, log_likelihoods, log_predictive, predictive_outputs
from metareplay.inference.settings import InferenceSettings
from metareplay.inference.task_inference import infer_tasks, infer_tasks_batch_wise
from metareplay.model import ContinualModel, HeadLayout
from metareplay.seeding import generator_for
from metareplay.task_maps.direct import SharedParameters

SCORED_AT_ONCE = 500
"""Inputs whose log-likelihoods are held at once."""
VARIANCE = "variance"
"""The only criterion of regression: the task with the lowest predictive variance."""


class Answers(NamedTuple):
    """What one task's posterior says about some inputs: predictions (N,) or (N, D), and by criterion what it says of itself (N, ...)."""

    predictions: Tensor
    scores: dict[str, Tensor]


class Tested(NamedTuple):
    """One task tested with the task given."""

    score: float
    """Accuracy in percent, or mean squared error."""
    reliability: Tensor | None
    """What a reliability diagram shows (3, bins), see ``reliability``; None for regression."""


class Inference(NamedTuple):
    """Task inference with one criterion, over all test inputs; percentages, or squared errors."""

    score: float
    """Accuracy (a wrong task is a wrong answer, unless all tasks share their classes) or mean squared error."""
    right_task: float
    batch_wise: float | None
    confusion: list[list[float]]
    """Row: the true task; column: how often each task was inferred, in percent."""
    counts: Tensor
    """Scores of each task's posterior in bins: of the task's own inputs, then of the other tasks' inputs; (2, T, bins)."""


class Row(NamedTuple):
    """What one criterion makes of one true task's inputs."""

    score: float
    right_task: float
    batch_wise: float
    shares: list[float]
    counts: Tensor


class Evaluator:
    """Evaluates a model with the same weight samples each time, so that scores differ only by what training changed."""

    def __init__(
        self, model: ContinualModel, settings: InferenceSettings, *, regression: bool, seed: int, scenario: Scenario = Scenario.CLASS
    ) -> None:
        self.model, self.settings, self.regression, self.seed, self.scenario = model, settings, regression, seed, scenario
        self.target_scale: Tensor | None = None
        """What the targets were divided by (D,), so that squared errors are in the user's units; None: by nothing."""

    def criteria(self) -> list[str]:
        """The criteria that apply: none where tasks are known or share one answer, some only where weights can differ."""
        if self.scenario is Scenario.TASK:
            return []
        single = self.model.family.weight_sets == 1
        one_answer = isinstance(self.model.task_map, SharedParameters) and self.model.layout is HeadLayout.SINGLE
        if one_answer or self.model.layout.one_softmax:
            return []
        if self.regression:
            return [] if single else [VARIANCE]
        return [name for name, criterion in CRITERIA.items() if not (single and criterion.needs_samples)]

    def outputs(self, x: Tensor, task: int, *, every_output: bool = False) -> Tensor:
        """Outputs of one task's networks (S, N, C), always with the same weight samples."""
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

    def statistics(
        self, x: Tensor, tasks: Sequence[int], wanted: Mapping[str, Statistic], criteria: Sequence[Criterion] = ()
    ) -> list[dict[str, Tensor]]:
        """What is wanted of each task's log-likelihoods (S, N, C), by name (N, ...), and always its LOG_PREDICTIVE.

        The criteria are those by which a task will be chosen: adaptive sampling settles their decisions, or without any the classes.
        """
        settings = self.settings
        wanted = {**wanted, **{criterion.name: criterion.score for criterion in criteria}, LOG_PREDICTIVE: log_predictive}
        if settings.adaptive is None:
            return [_of_log_likelihoods(self.outputs(x, task), wanted) for task in tasks]
        heads = [self.model.heads[task] for task in tasks]
        samples = [self._samples(task) for task in tasks]
        return adaptive_statistics(samples, x, wanted, criteria, heads, settings)

    def answers(self, x: Tensor, tasks: Sequence[int], criteria: Sequence[str] = ()) -> list[Answers]:
        """Predictions of each task's posterior and how uncertain it is."""
        if self.regression:
            outputs = (self.outputs(x, task) for task in tasks)  # (S, N, C) each
            return [Answers(values.mean(0), {name: predictive_variance(values) for name in criteria}) for values in outputs]
        said = self.statistics(x, tasks, {}, [CRITERIA[name] for name in criteria])
        return [Answers(found[LOG_PREDICTIVE].argmax(-1), {name: found[name] for name in criteria}) for found in said]

    def error_or_hit(self, predictions: Tensor, y: Tensor) -> Tensor:
        """Per input: the squared error, or 100 for a right class and 0 for a wrong one: (N,)."""
        if self.regression:
            error = predictions.double() - y.double()
            return (error if self.target_scale is None else error * self.target_scale).square().mean(-1)  # (N, D) -> (N,)
        return 100.0 * (predictions == y).double()

    def tested(self, task: int, test: TaskData) -> Tested:
        """Score and calibration with the task given."""
        if self.regression:
            return Tested(float(self.error_or_hit(self.answers(test.x, [task])[0].predictions, test.y).mean()), None)
        said = self.statistics(test.x, [task], {"conf": CRITERIA["conf"].score})[0]
        values = self.error_or_hit(said[LOG_PREDICTIVE].argmax(-1), test.y)
        return Tested(float(values.mean()), reliability(1.0 - said["conf"], values > 0))

    def given(self, task: int, test: TaskData) -> float:
        """Accuracy in percent, or mean squared error, with the task given."""
        return self.tested(task, test).score

    def inferred(self, tests: Sequence[TaskData]) -> dict[str, Inference]:
        """All criteria on all tasks' test data: the mean over tasks of each figure."""
        criteria, tasks = self.criteria(), range(self.model.num_tasks)
        if not criteria or not tests:
            return {}
        rows: dict[str, list[Row]] = {name: [] for name in criteria}
        for true, test in enumerate(tests):
            answers = self.answers(test.x, tasks, criteria)
            values = torch.stack([self.error_or_hit(answer.predictions, test.y) for answer in answers])  # (T, N)
            for name in criteria:
                rows[name].append(self._row(self._compared(name, answers), values, true))
        return {name: self._summary(found) for name, found in rows.items()}

    def _compared(self, name: str, answers: Sequence[Answers]) -> Tensor:
        """The scores of all tasks, the lowest wins: (T, N)."""
        said = [answer.scores[name] for answer in answers]
        return torch.stack(said) if self.regression else CRITERIA[name].compare(said, self.model.heads, self.settings)

    def _row(self, scores: Tensor, values: Tensor, true: int) -> Row:
        chosen, together = infer_tasks(scores), infer_tasks_batch_wise(scores, self.settings.batch_wise)  # (T, N) -> (N,)
        shares = 100.0 * torch.bincount(chosen, minlength=len(scores)).double() / scores.shape[1]
        alone, batches = self._value(values, chosen, true), self._value(values, together, true)
        return Row(alone, float(shares[true]), batches, shares.tolist(), count_scores(scores))

    def _value(self, values: Tensor, chosen: Tensor, true: int) -> float:
        found = values.gather(0, chosen.unsqueeze(0)).squeeze(0)  # (T, N) -> (N,)
        if self.scenario is Scenario.CLASS and not self.regression:
            found = found * (chosen == true)  # a wrong task is a wrong answer; where tasks share their classes it may be a right one
        return float(found.mean())

    def _summary(self, rows: list[Row]) -> Inference:
        batch_wise = None if self.regression else mean([row.batch_wise for row in rows])
        total = torch.stack([row.counts for row in rows]).sum(0)  # (true tasks, T, bins) -> (T, bins)
        own = torch.zeros_like(total)
        for true, row in enumerate(rows):
            own[true] = row.counts[true]
        counts = torch.stack([own, total - own])  # (2, T, bins)
        score, right = mean([row.score for row in rows]), mean([row.right_task for row in rows])
        return Inference(score, right, batch_wise, [row.shares for row in rows], counts)

    def shared_softmax(self, tests: Sequence[TaskData]) -> float | None:
        """Accuracy over all classes at once, where one softmax spans all tasks; None elsewhere."""
        if not self.model.layout.one_softmax or self.regression:
            return None
        hits, last = [], len(tests) - 1  # nobody says which task an input belongs to: batch-norm statistics are those of the last one
        for task, test in enumerate(tests):
            predicted = log_predictive(log_likelihoods(self.outputs(test.x, last, every_output=True))).argmax(-1)  # (S, N, C) -> (N,)
            hits.append(float(100.0 * (predicted == test.y + self.model.heads[task].start).double().mean()))
        return mean(hits)


def _of_log_likelihoods(outputs: Tensor, wanted: Mapping[str, Statistic]) -> dict[str, Tensor]:
    """Statistics of the log-likelihoods of outputs (S, N, C), a few inputs at a time: float64 needs no more memory than fits the cache."""
    found: dict[str, list[Tensor]] = {name: [] for name in wanted}
    for part in outputs.split(SCORED_AT_ONCE, dim=1):
        log_probs = log_likelihoods(part)
        for name, statistic in wanted.items():
            found[name].append(statistic(log_probs))
    return {name: torch.cat(values) for name, values in found.items()}


def mean(values: Sequence[float]) -> float:
    """The plain mean of some numbers."""
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
