"""Predictions as JSON: what the estimator answers, row by row."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import repeat
from typing import Any

import numpy as np

from metareplay.data.labels import distinct_names
from metareplay.estimators.classifier import ClassPrediction, ContinualClassifier
from metareplay.estimators.loading import AnyEstimator
from metareplay.estimators.regressor import RealPrediction

Prediction = ClassPrediction | RealPrediction
Row = dict[str, Any]


def answer_rows(prediction: Prediction, estimator: AnyEstimator) -> list[Row]:
    """One object per input, with every field that the prediction has; probabilities are named."""
    classes = distinct_names(estimator.classes_.tolist()) if isinstance(estimator, ContinualClassifier) else []
    names = {"probabilities": classes, "task_probabilities": estimator.task_names}
    columns: dict[str, Iterable[Any]] = {}
    for entry in fields(prediction):
        values = _values(getattr(prediction, entry.name))
        if entry.name in names and values is not None:
            values = [dict(zip(names[entry.name], row, strict=True)) for row in values]
        columns["label" if entry.name == "labels" else entry.name] = repeat(None) if values is None else values
    keys = list(columns)
    return [dict(zip(keys, row, strict=True)) for row in zip(*columns.values(), strict=False)]


def _values(values: Any) -> Sequence[Any] | None:
    """A field's values, one for each input; bounds that come as a pair become pairs."""
    if values is None:
        return None
    if isinstance(values, tuple) and values and all(isinstance(part, np.ndarray) for part in values):
        return [list(pair) for pair in zip(*(part.tolist() for part in values), strict=True)]
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def as_json(content: Any) -> bytes:
    """JSON as bytes; labels that are not plain values are written as text."""
    return json.dumps(content, ensure_ascii=False, default=str, separators=(",", ":")).encode("utf-8", "replace")


def describe_tasks(estimator: AnyEstimator) -> list[Mapping[str, Any]]:
    """Every task, its classes, and how many bytes are stored about its inputs and features."""
    assert estimator.learner is not None  # a stored model has one
    keeper = estimator.learner.predictor.keeper
    sizes: Sequence[int | None] = keeper.sizes() if keeper.available else [None] * len(estimator.tasks)
    return [
        {"number": number, "name": task.name, "classes": list(task.classes), "statistics_bytes": size}
        for number, (task, size) in enumerate(zip(estimator.tasks, sizes, strict=True))
    ]


AUDIT_NOTE = (
    "How far the answers of each task have moved since it was learned, on probes that were drawn from its statistics: "
    "0 % means the same answers, 100 % a different answer with certainty for every probe."
)
