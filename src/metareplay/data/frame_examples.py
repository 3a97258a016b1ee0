"""Inputs of estimators: arrays as they are, data frames by the names of their columns.

The first frame decides how columns become inputs; that is stored with the model, like that of a model made by
``metareplay run --data``, and serves every later frame.
"""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from metareplay.data.cells import TextFormat
from metareplay.data.columns import Table, decimal_of
from metareplay.data.encoding import describe_columns, encode_columns, filled
from metareplay.data.frames import NAME, frame_table, is_frame, is_series, series_values
from metareplay.data.misleading import misleading_notes
from metareplay.errors import DataError, DataWarning
from metareplay.written_text import BYTES, as_bytes

LEAVE_OUT = "leave it out with drop(columns={name!r})"
FILL = "fill it in, or drop the row"


class PlainExamples(NamedTuple):
    """Inputs and targets without data frames, and how frames become inputs."""

    x: Any
    y: Any
    known: Mapping[str, Any]


def training_examples(x: Any, y: Any, known: Mapping[str, Any], *, fresh: bool) -> PlainExamples:
    """What a task is learned from; ``y`` may be a column's name. ``fresh``: nothing was learned before."""
    label = y if isinstance(y, str) else getattr(y, "name", None) if is_series(y) else None
    if (texts := texts_in(x)) is not None and (fresh or _text_length(known)):
        known = known if known else {"kind": "table", "columns": [{"name": "text", "text": BYTES}]}
        return PlainExamples(as_bytes(texts, _text_length(known)), plain_targets(y), known)
    if not is_frame(x):
        if isinstance(y, str):
            raise DataError(f"y={y!r} names a column, but X is not a data frame; give the targets themselves")
        return PlainExamples(x, plain_targets(y), known)
    table = frame_table(x, TextFormat(known.get("decimal")))
    y, inputs = _targets(table, x, y)
    if known.get("kind") == "table":
        _refuse_surplus(table, inputs, known)
        return PlainExamples(_encode(table, known), y, known)
    if fresh:
        known = {"kind": "table", "columns": describe_columns(table, inputs, LEAVE_OUT)}
        known |= {"label": label} if isinstance(label, str) else {}
        known |= {"decimal": sign} if (sign := decimal_of(table, inputs)) is not None else {}
        encoded = _encode(table, known)
        for text in misleading_notes(table, encoded, known["columns"], advice=LEAVE_OUT):
            warnings.warn(text, DataWarning, stacklevel=4)
        return PlainExamples(encoded, y, known)
    return PlainExamples(_in_order(table, inputs), y, known)


def scored_examples(x: Any, y: Any, known: Mapping[str, Any]) -> PlainExamples:
    """What a model is scored on; columns that it does not need are ignored."""
    if not is_frame(x):
        return training_examples(x, y, known, fresh=False)
    table = frame_table(x, TextFormat(known.get("decimal")))
    y, inputs = _targets(table, x, y)
    return PlainExamples(_encode(table, known) if known.get("kind") == "table" else _in_order(table, inputs), y, known)


def plain_inputs(x: Any, known: Mapping[str, Any]) -> Any:
    """Inputs to predict from; columns of a data frame that the model does not need are ignored."""
    if _text_length(known) and (texts := texts_in(x)) is not None:
        return as_bytes(texts, _text_length(known))
    if not is_frame(x):
        return x
    table = frame_table(x, TextFormat(known.get("decimal")))
    return _encode(table, known) if known.get("kind") == "table" else _in_order(table, list(table.columns))


def texts_in(x: Any) -> list[str | None] | None:
    """The texts that are given instead of rows of numbers: a list, an array or one column; None if it is none of
    these."""
    if not (is_series(x) or isinstance(x, list | tuple) or (isinstance(x, np.ndarray) and x.ndim == 1)):
        return None
    values = series_values(x) if is_series(x) else list(x)
    found = bool(values) and all(value is None or isinstance(value, str) for value in values) and any(values)
    return [None if value is None else str(value) for value in values] if found else None


def _text_length(known: Mapping[str, Any]) -> int:
    """The bytes of a text, if a model reads texts; else 0."""
    columns = known.get("columns", ())
    return int(columns[0]["text"]) if len(columns) == 1 and "text" in columns[0] else 0


def plain_targets(y: Any) -> Any:
    """Targets without data frames: one column as a list of plain values, several as an array."""
    if is_frame(y):
        return np.column_stack([np.asarray(column.values) for column in frame_table(y).columns.values()])
    if not is_series(y):
        return y
    values = series_values(y)
    if None in values:
        raise DataError(f"the target in row {values.index(None)} is missing; every example needs one: {FILL}")
    return values


def _targets(table: Table, frame: Any, y: Any) -> tuple[Any, list[str]]:
    """The targets, and the columns that are left for the inputs."""
    if not isinstance(y, str):
        _refuse_names(table, y)
        return plain_targets(y), list(table.columns)
    table.column(y, "y names it")
    inputs = [name for name in table.columns if name != y]
    if not inputs:
        raise DataError(f"{NAME} has no columns for the inputs besides {y!r}")
    return plain_targets(frame[y]), inputs


def _refuse_names(table: Table, y: Any) -> None:
    """Refuse a list of columns in the place of targets; as many labels as rows are taken for labels."""
    named = isinstance(y, list | tuple) and all(isinstance(name, str) and name in table.columns for name in y)
    if named and 0 < len(y) != len(table):
        names = list(y)
        raise DataError(
            f"y={names!r} is a list of columns; y takes one name, or the targets themselves. For several targets give "
            f"a two-dimensional y: learn_task(frame.drop(columns={names!r}), frame[{names!r}])"
        )


def _encode(table: Table, known: Mapping[str, Any]) -> np.ndarray:
    encoded = encode_columns(table, known["columns"], gaps="fill" in known, advice=FILL)
    for text in encoded.warnings:
        warnings.warn(text, DataWarning, stacklevel=5)
    return filled(encoded.x, known)


def _in_order(table: Table, names: list[str]) -> np.ndarray:
    """Numbers in the order of the columns, for a model that does not know their names."""
    for name in names:
        if table.columns[name].kind != "number":
            raise DataError(
                f"{NAME}: column {name!r} holds {table.columns[name].kind}, but this model learned from arrays of "
                "numbers, without column names; give it numbers in the same order"
            )
    return encode_columns(table, [{"name": name} for name in names], gaps=False, advice=FILL).x


def _refuse_surplus(table: Table, inputs: list[str], known: Mapping[str, Any]) -> None:
    """Refuse columns that the model cannot learn from: they were not there in the first task."""
    expected = {entry["name"] for entry in known["columns"]}
    apart = {known.get("label"), known.get("task"), *known.get("ignored", ())}
    if surplus := [name for name in inputs if name not in expected | apart]:
        raise DataError(
            f"{NAME} has a column {surplus[0]!r} that the first task did not have; all tasks need the same columns "
            f"({', '.join(map(repr, sorted(expected)[:20]))}): {LEAVE_OUT.format(name=surplus[0])}"
        )
