"""Learning one more task into a stored model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metareplay.data.base import encode_labels
from metareplay.data.cells import TextFormat
from metareplay.data.columns import Table
from metareplay.data.inputs import in_shape, table_inputs
from metareplay.data.labels import Request, labels_of_table
from metareplay.data.readers.csv_tables import csv_table
from metareplay.data.records import records_table
from metareplay.errors import ConfigError, DataError
from metareplay.estimators.loading import AnyEstimator, load_estimator
from metareplay.learner.store import find_model, writing
from metareplay.serve.inputs import NAME, json_body

KINDS = ("text/csv", "application/json")


class TaskExamples(NamedTuple):
    """Inputs (N, ...) of a task, and its labels or real targets."""

    x: np.ndarray
    y: Sequence[Any]


def read_examples(content: bytes, kind: str, label: str | None, estimator: AnyEstimator) -> TaskExamples:
    """The examples in a request: a CSV text, rows with names, or arrays beside a list of labels."""
    if kind == "text/csv":
        return _of_table(csv_table(content, NAME, TextFormat(estimator.inputs.get("decimal"))), label, estimator)
    body = json_body(content)
    rows = body.get("rows") if isinstance(body, dict) else None
    if not isinstance(rows, list) or not rows:
        raise DataError('send the examples as {"rows": [...]}: objects with a label, or arrays beside "labels": [...]')
    if all(isinstance(row, Mapping) for row in rows):
        return _of_table(records_table(rows, NAME, TextFormat(estimator.inputs.get("decimal"))), label, estimator)
    labels = body.get("labels")
    if not isinstance(labels, list) or len(labels) != len(rows):
        raise DataError(f'rows that are arrays need "labels": a list of {len(rows)}, one for each row')
    try:
        x = np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"the rows must all be arrays of numbers of one shape ({error})") from error
    return TaskExamples(in_shape(x, estimator.input_shape), labels)


def _of_table(table: Table, label: str | None, estimator: AnyEstimator) -> TaskExamples:
    request = Request(labels=True, label=label)
    source = labels_of_table(table, estimator.inputs, request).source
    x = in_shape(table_inputs(table, estimator.inputs, request).x, estimator.input_shape)
    index, labels = encode_labels(table.columns[source].names, f"label in column {source!r}", table.places)
    if estimator.problem == "regression":
        values = np.array(labels)[index.numpy()] if labels else index.numpy()  # (N,) or (N, 1)
        return TaskExamples(x, values.tolist())
    if not labels:
        raise DataError(f"column {source!r} holds numbers with fractions, but this model predicts classes")
    return TaskExamples(x, [labels[number] for number in index.tolist()])


def check_name(name: str | None, estimator: AnyEstimator) -> str:
    """A task's name; refused if there is none or it is taken."""
    name = (name or "").strip()
    if not name or len(name) > 200 or not name.isprintable():
        raise DataError("the task needs a name of 1 to 200 characters: /tasks?name=march")
    if name in estimator.task_names:
        raise ConfigError(f"a task named {name!r} was learned already; choose another name")
    return name


def learn(folder: Path, name: str, examples: bytes, kind: str, label: str | None) -> None:
    """Learn a task and store the model; the stored one is left as it was if anything fails."""
    place = find_model(folder)
    with writing(place):
        estimator = load_estimator(folder)
        x, y = read_examples(examples, kind, label, estimator)
        estimator.learn_task(x, y, name=check_name(name, estimator))
        estimator.save(place)
