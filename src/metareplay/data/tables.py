"""A user's table as examples: which column is the label, which the task, and how the rest become inputs."""

import numpy as np
import torch

from metareplay.data.base import Examples, encode_labels, encode_tasks
from metareplay.data.columns import Table, describe_columns, encode_columns, label_name, refuse_doubtful, written
from metareplay.data.readers.images import read_pixels
from metareplay.data.settings import BY_CLASSES, DataSettings
from metareplay.errors import DataError

TASK_NAME = "task"
"""The column that names the task unless another is named."""
_SPLITS = {"train": False, "training": False, "test": True, "testing": True}


def examples_of(table: Table, settings: DataSettings) -> Examples:
    """The rows of a table as examples."""
    for name in settings.ignore:
        table.column(name, "--ignore names it")
    label, by = label_name(table, settings.label), _task_column(table, settings)
    special = {label, by, settings.split_by, *settings.ignore}
    names = [name for name in table.columns if name not in special]
    images = [name for name in names if table.columns[name].kind == "image"]
    notes: list[str] = []
    refuse_doubtful(table, names, label)
    if settings.missing == "drop" and not images:
        table = _without_gaps(table, names, notes)
    kept = table
    task, tasks = (None, ()) if by is None else encode_tasks(written(kept.columns[by]), kept.places)
    y, labels = encode_labels(kept.columns[label].names, f"label in column {label!r}", kept.places)
    marks = _test_marks(kept, settings.split_by)
    test = None if marks is None else torch.from_numpy(marks)
    if images:
        if len(images) > 1:
            raise DataError(
                f"{table.source()} has several columns of images ({', '.join(images)}); "
                "leave out all but one with --ignore"
            )
        pixels, mode = read_pixels(kept.columns[images[0]].values.tolist(), kept.where, settings.image_size)
        inputs = {
            "kind": "images",
            "mode": mode,
            "size": list(pixels.shape[2:]),
            "resize": settings.image_size is not None,
        }
        return Examples(pixels, y, labels, kept.places, task, tasks, test, inputs)
    if not names:
        raise DataError(
            f"{table.source()} has no columns left for the inputs besides "
            f"{', '.join(map(repr, sorted(filter(None, special))))}"
        )
    described = describe_columns(kept, names)
    if texts := [entry for entry in described if "values" in entry]:
        notes.append(
            "text columns, one input per value: "
            + ", ".join(f"{entry['name']} ({len(entry['values'])})" for entry in texts)
        )
    x = torch.from_numpy(encode_columns(kept, described, gaps=settings.missing == "fill"))
    return Examples(x, y, labels, kept.places, task, tasks, test, {"kind": "table", "columns": described}, tuple(notes))


def _task_column(table: Table, settings: DataSettings) -> str | None:
    if settings.tasks_by is None or settings.tasks_by.startswith(BY_CLASSES):
        return TASK_NAME if TASK_NAME in table.columns and settings.label != TASK_NAME else None
    table.column(settings.tasks_by, "--tasks-by names it; to split by classes write classes:2")
    return settings.tasks_by


def _without_gaps(table: Table, names: list[str], notes: list[str]) -> Table:
    complete = np.ones(len(table), dtype=bool)
    for name in names:
        column = table.columns[name]
        if column.kind == "number":
            complete &= ~np.isnan(column.values.astype(np.float64))
        elif column.kind == "text":
            complete &= np.array([value is not None for value in column.values.tolist()])
    if not complete.any():
        raise DataError(
            f"{table.source()}: every row has a missing value, so none is left; "
            "leave out the emptiest columns with --ignore"
        )
    if dropped := int((~complete).sum()):
        notes.append(f"{dropped} of {len(table)} rows have missing values and were left out")
    return table.keep(complete)


def _test_marks(table: Table, column: str | None) -> np.ndarray | None:
    if column is None:
        return table.test
    if table.test is not None:
        raise DataError(f"{table.source()} comes with its own test set; remove --split-by {column}")
    words = written(table.column(column, "--split-by names it"))
    for row, word in enumerate(words):
        if word is None or word.lower() not in _SPLITS:
            raise DataError(f"{table.where(row)}: column {column!r} says {word!r}; it must say train or test")
    return np.array([_SPLITS[str(word).lower()] for word in words])
