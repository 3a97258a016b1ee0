"""The examples of one more task, as a client sends them, and learning them into the stored model."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metareplay.data.settings import DataSettings
from metareplay.errors import ConfigError, DataError, MetaReplayError
from metareplay.estimators.loading import AnyEstimator
from metareplay.living.examples import NewData, read_tasks
from metareplay.living.learning import Terms, add_tasks
from metareplay.living.place import checked_name
from metareplay.serve.inputs import NAME, json_body
from metareplay.serve.labelled_images import LabelledFile, write_images
from metareplay.serve.settings import ServeSettings

KINDS = ("text/csv", "application/json")


class Text(NamedTuple):
    """Examples as rows."""

    kind: str
    content: bytes


Examples = Text | Sequence[LabelledFile]


def written(examples: Examples, estimator: AnyEstimator, settings: ServeSettings, folder: Path) -> Path:
    """A request's examples as a file, or images as a folder."""
    if isinstance(examples, Text):
        return write_examples(examples.content, examples.kind, folder)
    return write_images(examples, estimator, settings, folder)


def write_examples(content: bytes, kind: str, folder: Path) -> Path:
    """Rows as a file: CSV as it came, rows with names as CSV, arrays with labels as .npz."""
    if kind == "text/csv":
        path = folder / "examples.csv"
        path.write_bytes(content)
        return path
    body = json_body(content)
    rows = body.get("rows") if isinstance(body, dict) else None
    if not isinstance(rows, list) or not rows:
        raise DataError(
            'send the examples as {"rows": [...]}: objects with a label, or arrays together with "labels": [...]'
        )
    if all(isinstance(row, Mapping) for row in rows):
        return _as_csv(rows, folder / "examples.csv")
    return _as_arrays(rows, body.get("labels"), folder / "examples.npz")


def _as_csv(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([["" if row.get(name) is None else row[name] for name in names] for row in rows])
    return path


def _as_arrays(rows: Sequence[Any], labels: Any, path: Path) -> Path:
    if not isinstance(labels, list) or len(labels) != len(rows):
        raise DataError(f'rows that are arrays need "labels": a list of {len(rows)}, one for each row')
    try:
        x, y = np.asarray(rows, dtype=np.float32), np.array(labels)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"the rows must all be arrays of numbers of one shape ({error})") from error
    if y.dtype.kind not in "biufU":
        raise DataError("the labels must be all text or all numbers, one for each row")
    np.savez(path, x=x, y=y)
    return path


def read_task(path: Path, name: str, label: str | None, estimator: AnyEstimator) -> NewData:
    """Read what is to be learned, so that what cannot be is refused at once."""
    try:
        return read_tasks(
            _settings(path, label, estimator.inputs),
            name=name,
            known=estimator.inputs,
            problem=estimator.problem,
            shape=estimator.input_shape,
        )
    except MetaReplayError as error:
        raise _without_path(error, path) from error


def learn(folder: Path, path: Path, name: str, label: str | None, max_change: float | None = None) -> None:
    """Add the task; the stored model is left as it was if anything fails."""
    from metareplay.learner.store import load_model

    try:
        add_tasks(
            folder, _settings(path, label, load_model(folder).inputs), name=name, terms=Terms(max_change=max_change)
        )
    except MetaReplayError as error:
        raise _without_path(error, path) from error


def _settings(path: Path, label: str | None, known: Mapping[str, Any]) -> DataSettings:
    return DataSettings(path=str(path), label=known.get("label") if label is None and path.suffix == ".csv" else label)


def _without_path(error: MetaReplayError, path: Path) -> MetaReplayError:
    """The same error, which speaks of the request instead of the file that it was put into."""
    return type(error)(str(error).replace(str(path), NAME))


def check_name(name: str | None, estimator: AnyEstimator) -> str:
    """A task's name; refused if there is none or it is taken."""
    name = checked_name(name or "")
    if name in estimator.task_names:
        raise ConfigError(f"a task named {name!r} has already been learned; choose another name")
    return name
