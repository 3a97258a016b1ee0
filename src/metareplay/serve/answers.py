"""Predictions as JSON: what the estimator answers, row by row."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from metareplay.data.labels import distinct_names
from metareplay.estimators.classifier import ContinualClassifier
from metareplay.estimators.loading import AnyEstimator
from metareplay.serve.batching import Share

Row = dict[str, Any]


def answer_rows(share: Share, estimator: AnyEstimator, files: Sequence[str] | None = None) -> list[Row]:
    """One object per input, with every field that the prediction has; probabilities are named."""
    classes = distinct_names(estimator.classes_.tolist()) if isinstance(estimator, ContinualClassifier) else []
    names = {"probabilities": classes, "task_probabilities": estimator.task_names}
    count = share.rows.stop - share.rows.start
    columns: dict[str, Sequence[Any]] = {} if files is None else {"file": files}
    for entry in fields(share.prediction):
        values = _values(getattr(share.prediction, entry.name), share.rows, count)
        if entry.name in names and values[0] is not None:
            values = [dict(zip(names[entry.name], row, strict=True)) for row in values]
        columns["label" if entry.name == "labels" else entry.name] = values
    keys = list(columns)
    return [dict(zip(keys, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _values(values: Any, rows: slice, count: int) -> Sequence[Any]:
    """A field's values for some rows; bounds that come as a pair become pairs."""
    if values is None:
        return [None] * count
    if isinstance(values, tuple) and values and all(isinstance(part, np.ndarray) for part in values):
        return [list(pair) for pair in zip(*(part[rows].tolist() for part in values), strict=True)]
    return values[rows].tolist() if isinstance(values, np.ndarray) else list(values[rows])


def as_json(content: Any) -> bytes:
    """JSON as bytes; labels that are no plain values are written as text."""
    return json.dumps(content, ensure_ascii=False, default=str, separators=(",", ":")).encode()


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
    "0 % is the same answer, 100 % another one with certainty for every probe."
)
