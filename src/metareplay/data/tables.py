"""A user's table as examples: which column is the label, which the task, and how the rest become inputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metareplay.data.base import FILLING, Examples, encode_labels, encode_tasks
from metareplay.data.cells import as_numbers
from metareplay.data.columns import Column, Table, decimal_of, label_name, written
from metareplay.data.encoding import MOST_VALUES, describe_columns, encode_columns, filled, refuse_missing
from metareplay.data.misleading import IGNORE, LATER, misleading_notes
from metareplay.data.readers.images import read_pixels
from metareplay.data.settings import BY_CLASSES, DataSettings
from metareplay.errors import DataError

TASK_NAME = "task"
"""The column that names the task unless another is named."""
MOST_UNITS = 20
"""So many different labels with a unit may be classes, such as 5 % and 10 %."""
_SPLITS = {"train": False, "training": False, "test": True, "testing": True}


def examples_of(table: Table, settings: DataSettings, known: Mapping[str, Any] | None = None) -> Examples:
    """The rows of a table as examples; ``known`` is how the columns of a model's earlier tables became inputs."""
    earlier = known if known and known.get("kind") == "table" else None
    for name in settings.ignore:
        table.column(name, "--ignore names it")
    label, by = label_name(table, settings.label or (known or {}).get("label")), _task_column(table, settings)
    special = {label, by, settings.split_by, *settings.ignore}
    names = [name for name in table.columns if name not in special]
    if settings.text is not None:
        table.column(settings.text, "--text names it")
        names = [settings.text]
    surplus: list[str] = []
    if earlier is not None:
        wanted = [entry["name"] for entry in earlier["columns"]]
        apart = {earlier.get("task"), *earlier.get("ignored", ())}
        names, surplus = wanted, [name for name in names if name not in wanted and name not in apart]
    notes = list(table.notes)
    notes += [f"not used, because the model's first task did not have them: {', '.join(surplus)}"] if surplus else []
    refuse_missing(table, names)
    images = [name for name in names if table.columns[name].kind == "image"]
    table = table.whole([label, by, settings.split_by])
    refuse_doubtful(table, _without_texts(names, settings, earlier), label)
    notes += _read_specially(table, [*names, label])
    if settings.missing == "drop" and not images:
        table = _without_gaps(table, names, notes)
    task, tasks = (None, ()) if by is None else encode_tasks(written(table.columns[by]), table.places)
    y, labels = encode_labels(_label_values(table.columns[label]), f"label in column {label!r}", table.places)
    marks = _test_marks(table, settings.split_by)
    test = None if marks is None else torch.from_numpy(marks)
    if not names:
        raise DataError(
            f"{table.source()} has no columns left for the inputs besides "
            f"{', '.join(map(repr, sorted(filter(None, special))))}"
        )
    if earlier is not None:
        x, inputs = _encoded_as(table, earlier, notes)
    else:
        x, inputs = _pixels(table, images, settings) if images else _encoded(table, names, settings, notes)
    if not images:
        told = (None if task is None else task.numpy(), IGNORE if earlier is None else LATER)
        notes += misleading_notes(table, x.numpy(), inputs["columns"], *told)
    inputs |= {"label": label, **({} if by is None else {"task": by})}
    return Examples(x, y, labels, table.places, task, tasks, test, inputs, tuple(notes))


def _label_values(column: Column) -> np.ndarray:
    """Names as written, or numbers (N,): those with a unit are names only if they are few."""
    many = column.unit is not None and len(set(column.names.tolist())) > MOST_UNITS
    return column.values if many else column.names


def _pixels(table: Table, images: Sequence[str], settings: DataSettings) -> tuple[Tensor, dict[str, Any]]:
    """The images in a column (N, C, H, W), and how further ones become inputs."""
    if len(images) > 1:
        raise DataError(
            f"{table.source()} has several columns of images ({', '.join(images)}); leave out all but one with --ignore"
        )
    pixels, mode = read_pixels(table.columns[images[0]].values.tolist(), table.where, settings.image_size)
    resize = settings.image_size is not None
    return pixels, {"kind": "images", "mode": mode, "size": list(pixels.shape[2:]), "resize": resize}


def _encoded(
    table: Table, names: Sequence[str], settings: DataSettings, notes: list[str]
) -> tuple[Tensor, dict[str, Any]]:
    """The columns as inputs (N, D), and how further rows become inputs."""
    texts = [{"name": name, "text": settings.text_bytes} for name in names if name == settings.text]
    described = texts or describe_columns(table, names)
    notes += _described(described)
    x = torch.from_numpy(encode_columns(table, described, gaps=settings.missing == "fill").x)
    gaps = {FILLING: True} if settings.missing == "fill" and not texts else {}
    return x, {"kind": "table", "columns": described, **_reading(table, names, settings), **gaps}


def _encoded_as(table: Table, known: Mapping[str, Any], notes: list[str]) -> tuple[Tensor, dict[str, Any]]:
    """The columns as inputs (N, D), just as those of earlier tables."""
    advice = "fill it in, or choose --set data.missing=drop (drops such rows); this model does not fill them in itself"
    encoded = encode_columns(table, known["columns"], gaps="fill" in known, advice=advice)
    notes += encoded.warnings
    return torch.from_numpy(filled(encoded.x, known)), dict(known)


def _without_texts(names: Sequence[str], settings: DataSettings, earlier: Mapping[str, Any] | None) -> list[str]:
    """Columns that are not read as texts: in those nothing is a typo."""
    texts = {entry["name"] for entry in (earlier or {}).get("columns", ()) if "text" in entry} | {settings.text}
    return [name for name in names if name not in texts]


def refuse_doubtful(table: Table, inputs: Sequence[str], label: str) -> None:
    """Refuse numbers with a typo among the inputs, and in a label that looks like a real target."""
    for name in inputs:
        if (doubt := table.columns[name].doubt) is not None:
            raise DataError(doubt)
    column = table.columns[label]
    if column.doubt is not None:
        numbers = [as_numbers([str(text).replace(",", ".", 1)]) for text in set(column.values.tolist()) - {None}]
        if len(numbers) > MOST_VALUES or any(
            number is not None and not float(number[0]).is_integer() for number in numbers
        ):
            raise DataError(column.doubt)


def _read_specially(table: Table, names: Sequence[str]) -> list[str]:
    """Notes on cells that may mean something else than what they were taken for."""
    commas, groups, day_first, month_first = (
        ", ".join(name for name in names if getattr(table.columns[name], field) == value)
        for field, value in (("decimal", "comma"), ("decimal", "point"), ("day_first", True), ("day_first", False))
    )
    notes = {
        f"numbers with decimal commas: {commas}": commas,
        f"numbers with commas between thousands: {groups}": groups,
        f"dates that begin with the day: {day_first}": day_first,
        f"dates that begin with the month: {month_first}": month_first,
    }
    return [note for note, concerned in notes.items() if concerned]


def _described(described: Sequence[Mapping[str, Any]]) -> list[str]:
    """Notes on columns that are not plain numbers."""
    texts = ", ".join(f"{entry['name']} ({len(entry['values'])})" for entry in described if "values" in entry)
    words = {"days": "days", "year": "time of year", "week": "weekday", "day": "time of day"}
    dates = ", ".join(
        f"{entry['name']} ({', '.join(words[part] for part in entry['date'])})"
        for entry in described
        if "date" in entry
    )
    units = ", ".join(f"{entry['name']} ({entry['unit']})" for entry in described if "unit" in entry)
    notes = {
        f"text columns, one input per value: {texts}": texts,
        f"dates as numbers: {dates}": dates,
        f"numbers with a unit: {units}": units,
    }
    return [note for note, concerned in notes.items() if concerned]


def _reading(table: Table, names: Sequence[str], settings: DataSettings) -> dict[str, Any]:
    """How further files are to be read, where that is not obvious from them."""
    decimal = settings.decimal or decimal_of(table, names)
    ignored = [*settings.ignore, *([] if settings.split_by is None else [settings.split_by])]
    facts = {"decimal": decimal, "encoding": settings.encoding, "ignored": ignored}
    return {name: value for name, value in facts.items() if value}


def _task_column(table: Table, settings: DataSettings) -> str | None:
    if settings.tasks_by is None or settings.tasks_by.startswith(BY_CLASSES):
        return TASK_NAME if TASK_NAME in table.columns and settings.label != TASK_NAME else None
    table.column(settings.tasks_by, "--tasks-by names it; to split by classes write classes:2")
    return settings.tasks_by


def _without_gaps(table: Table, names: list[str], notes: list[str]) -> Table:
    complete, end = np.ones(len(table), dtype=bool), 0
    for piece in table.tables(names):
        for name in names:
            if piece.columns[name].kind != "other":
                complete[end : end + len(piece)] &= ~piece.columns[name].missing
        end += len(piece)
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
