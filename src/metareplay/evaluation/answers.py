"""How good the answers themselves are, as a user gets them: labels, their probabilities, intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metareplay.benchmarks.base import TaskData, TaskInfo, label_columns
from metareplay.evaluation.uncertainty import calibration_error, reliability
from metareplay.inference.answers import RealAnswer
from metareplay.inference.mixing import by_label
from metareplay.inference.predictor import AnyPredictor, ClassPredictor, RealPredictor


@dataclass(frozen=True)
class AnswerQuality:
    """Over all test inputs, with the task inferred unless the name says otherwise; percentages, errors in targets."""

    label_accuracy: float | None = None
    """Right labels, whatever the task; mean over tasks."""
    calibration_error: float | None = None
    """Of the probabilities of labels."""
    rmse_given: float | None = None
    """Root mean squared error, with the task given."""
    r2_given: float | None = None
    coverage_given: float | None = None
    """Targets within their intervals, with the task given."""
    rmse: float | None = None
    r2: float | None = None
    coverage: float | None = None
    rows: int | None = None
    """Test inputs, over all tasks."""


def shared_labels(tasks: Sequence[TaskInfo]) -> bool:
    """Whether a label occurs in several tasks."""
    labels, columns = label_columns(tasks)
    return len(labels) < len(columns)


def answer_quality(
    predictor: AnyPredictor,
    tests: Sequence[TaskData],
    tasks: Sequence[TaskInfo] = (),
    target_scale: Tensor | None = None,
) -> AnswerQuality | None:
    """Test the answers of a calibrated model; None for others."""
    if not predictor.calibrated or not tests:
        return None
    if isinstance(predictor, ClassPredictor):
        return _labels(predictor, tests, torch.tensor(label_columns(tasks)[1])) if tasks else None
    return _targets(predictor, tests, target_scale)


def _labels(predictor: ClassPredictor, tests: Sequence[TaskData], columns: Tensor) -> AnswerQuality | None:
    if not predictor.criteria() and not predictor.model.layout.one_softmax:
        return None  # the task is always given
    widths = [head.stop - head.start for head in predictor.model.heads]
    confidence, hits = [], []
    for test, labels in zip(tests, columns.split(widths), strict=True):
        probabilities = by_label(predictor.predict(test.x, labels=columns).probabilities, columns)  # (N, labels)
        most, label = probabilities.max(1)
        confidence.append(most)
        hits.append(label == labels[test.y])
    accuracy = sum(float(100.0 * of_task.double().mean()) for of_task in hits) / len(hits)
    error = calibration_error(reliability(torch.cat(confidence), torch.cat(hits)))
    return AnswerQuality(accuracy, error, rows=sum(len(of_task) for of_task in hits))


def _targets(predictor: RealPredictor, tests: Sequence[TaskData], target_scale: Tensor | None) -> AnswerQuality:
    y = torch.cat([test.y for test in tests]).double()
    given = _figures([predictor.predict(test.x, task) for task, test in enumerate(tests)], y, target_scale)
    unknown: tuple[float | None, ...] = (None, None, None)
    if predictor.criteria() or predictor.one_answer:
        unknown = _figures([predictor.predict(test.x) for test in tests], y, target_scale)
    rmse, r2, coverage = unknown
    return AnswerQuality(None, None, *given, rmse, r2, coverage, len(y))


def _figures(
    answers: Sequence[RealAnswer], y: Tensor, target_scale: Tensor | None
) -> tuple[float, float | None, float | None]:
    """Root mean squared error, R2 (mean over targets), and percentage of targets (N, D) within their intervals."""
    errors = (torch.cat([answer.mean for answer in answers]) - y) * (1.0 if target_scale is None else target_scale)
    spread = y.var(0, correction=0) * (1.0 if target_scale is None else target_scale.square())  # (D,)
    r2 = float((1 - errors.square().mean(0) / spread).mean()) if bool((spread > 0).all()) else None
    ends = [(answer.lower, answer.upper) for answer in answers]
    inside = [
        (lower <= of_test) & (of_test <= upper)
        for (lower, upper), of_test in zip(ends, y.split([len(answer.mean) for answer in answers]), strict=True)
        if lower is not None and upper is not None
    ]
    coverage = float(100.0 * torch.cat(inside).double().mean()) if len(inside) == len(ends) else None
    return float(errors.square().mean().sqrt()), r2, coverage
