"""Columns as inputs: numbers as they are, dates as days and times of year, text as one input per value (one-hot)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from metareplay.arrays import LARGEST
from metareplay.data.cells import as_numbers, typed_text
from metareplay.data.columns import Column, Table, of_unit, written
from metareplay.data.dates import PART_WIDTHS, as_dates, encode_dates, useful_parts
from metareplay.errors import DataError
from metareplay.written_text import as_bytes

MOST_VALUES = 50
"""A text column with more distinct values than this is treated as an identifier or free text."""
WORDS = 3
"""Cells with at least this many words, on average, are free text."""

Description = Mapping[str, Any]
"""How one column becomes inputs, as plain values: ``name`` and, for words, ``values``, for dates, ``date``, for texts
that an encoder reads, ``text``, for numbers that were written with one, ``unit``."""


class Encoded(NamedTuple):
    """Inputs (N, D), float32, and what a user should know about them."""

    x: np.ndarray
    warnings: tuple[str, ...]


def describe_columns(
    table: Table, names: Sequence[str], advice: str = "leave it out with --ignore {name}"
) -> list[Any]:
    """How columns become inputs; ``advice`` says how a column that cannot is left out."""
    described: list[Description] = []
    for name in names:
        column, leave_out = table.columns[name], advice.format(name=name)
        if column.kind in ("other", "image"):
            convert = "" if column.convert is None else f"{column.convert}, or "
            raise DataError(f"{table.source()}: {_neither(name)}; {convert}{leave_out}")
        if len(column.values) and column.kind != "text" and column.missing.all():
            raise DataError(f"{table.source()}: column {name!r} is empty; {leave_out}")
        if column.kind == "number":
            described.append({"name": name, **({} if column.unit is None else {"unit": column.unit})})
        elif column.kind == "date":
            order = {} if column.day_first is None else {"day_first": column.day_first}
            described.append({"name": name, "date": useful_parts(column.values), **order})
        else:
            described.append({"name": name, "values": _values(table, name, column, leave_out)})
    return described


def _neither(name: str) -> str:
    return f"column {name!r} holds neither numbers, dates nor text"


def _values(table: Table, name: str, column: Column, leave_out: str) -> list[str]:
    """The values of a text column: those that were declared, or those that it has."""
    if column.categories is not None:
        return list(column.categories)
    values = sorted({value for value in column.values.tolist() if value is not None})
    if len(values) > MOST_VALUES:
        words = sum(len(value.split()) for value in values) / len(values)
        kind = "free text" if words >= WORDS else "an identifier, or a category with too many values"
        raise DataError(
            f"{table.source()}: the text column {name!r} has {len(values)} different values (e.g. {values[0]!r}); "
            f"more than {MOST_VALUES} look like {kind}: {leave_out}, let an encoder read it (--text {name}), or turn "
            "it into numbers yourself (docs/own_data.md#text-in-tables shows how)"
        )
    return values


def encode_columns(table: Table, described: Sequence[Description], *, gaps: bool, advice: str | None = None) -> Encoded:
    """Inputs (N, D), float32; missing numbers are NaN and missing text all zeros with ``gaps``, else refused.

    Text that was not in the training data is a further value, "other": all zeros, with a warning.
    """
    names = [entry["name"] for entry in described]
    refuse_missing(table, names)
    unseen: dict[str, _Unseen] = {}
    bare: dict[str, str] = {}
    x, end = np.empty((0, 0), dtype=np.float32), 0
    for piece in table.tables(names):
        bare |= {entry["name"]: entry["unit"] for entry in described if _lacks_unit(piece, entry)}
        part = _encoded(piece, described, unseen, gaps=gaps, advice=advice)
        if table.pieces is None:
            x = part
        else:
            x = x if end else np.empty((len(table), part.shape[1]), dtype=np.float32)
            x[end : end + len(part)] = part
            end += len(part)
    known = {entry["name"]: entry["values"] for entry in described if "values" in entry}
    warnings = [_words(name, about, known[name]) for name, about in unseen.items()]
    for name, unit in bare.items():
        warnings.append(f"column {name!r}: numbers without {unit!r} were taken to be in this unit")
    return Encoded(x, tuple(warnings))


def _lacks_unit(table: Table, entry: Description) -> bool:
    """Whether numbers that had a unit in the training data come without one; a different unit is refused."""
    name, column = entry["name"], table.columns[entry["name"]]
    if column.kind != "number" or entry.keys() & {"values", "text", "date"} or column.unit == entry.get("unit"):
        return False
    if column.unit is None:
        return not column.missing.all()
    found, learned = of_unit(column.unit), of_unit(entry.get("unit"))
    raise DataError(f"{table.source()}: column {name!r} has {found}, but {learned} in the training data; convert them")


def _encoded(
    table: Table, described: Sequence[Description], unseen: dict[str, "_Unseen"], *, gaps: bool, advice: str | None
) -> np.ndarray:
    """The inputs of some rows (N, D); what was not in the training data is added to ``unseen``."""
    parts = []
    for entry in described:
        name = entry["name"]
        column = table.columns[name]
        if column.convert is not None:
            raise DataError(f"{table.source()}: {_neither(name)} as in the training data; {column.convert}")
        missing = column.missing
        if not gaps and "text" not in entry and missing.any():
            raise DataError(_gap(table, int(missing.argmax()), name, advice))
        if "values" in entry:
            part, new = _one_hot(column, entry["values"])
            if new:
                row = next(row for row, value in enumerate(written(column)) if value in new)
                unseen.setdefault(name, _Unseen(table.where(row), Counter())).counts.update(new)
        elif "text" in entry:
            part = as_bytes(written(column), int(entry["text"]))
        elif "date" in entry:
            part = encode_dates(_dates(table, name, column, entry.get("day_first")), entry["date"])
        else:
            part = _numbers(table, name, _measured(column, entry.get("unit")))[:, None].astype(np.float32)  # (N, 1)
        parts.append(part)
    return np.concatenate(parts, axis=1)  # (N, D)


def widths_of(described: Sequence[Description]) -> list[int]:
    """How many inputs each column becomes."""
    return [
        len(entry["values"])
        if "values" in entry
        else int(entry["text"])
        if "text" in entry
        else sum(PART_WIDTHS[part] for part in entry["date"])
        if "date" in entry
        else 1
        for entry in described
    ]


def filled(x: np.ndarray, known: Mapping[str, Any]) -> np.ndarray:
    """The inputs (N, D), changed in place: with the values that the model puts where there are none."""
    if "fill" in known:
        np.copyto(x, np.array(known["fill"], dtype=np.float32), where=np.isnan(x))
    return x


def refuse_missing(table: Table, names: Sequence[str]) -> None:
    """Name all columns that are not there."""
    missing = [name for name in names if name not in table.columns]
    if missing:
        others = [name for name in table.columns if name not in names]
        words = (
            f"column {missing[0]!r} (the model's inputs need it)"
            if len(missing) == 1
            else f"columns {', '.join(map(repr, missing[:20]))} (the model's inputs need them)"
        )
        has = (
            f"besides the others it has {', '.join(map(repr, others[:20]))}"
            if others
            else f"it has {', '.join(map(repr, list(table.columns)[:20]))}"
        )
        raise DataError(f"{table.source()} has no {words}; {has}")


def _numbers(table: Table, name: str, column: Column) -> np.ndarray:
    """A column's numbers (N,), float64, finite where there is one."""
    parsed = as_numbers(column.values.tolist()) if column.kind == "text" else None
    if column.kind != "number" and parsed is None:
        if column.doubt is not None:
            raise DataError(column.doubt)
        odd = next((row for row, text in enumerate(column.values.tolist()) if column.kind == "text" and _odd(text)), 0)
        such = f"{column.kind} such as {column.values[odd]!r}" if column.kind == "text" else column.kind
        raise DataError(
            f"{table.where(odd)}: column {name!r} holds {such}, but must hold numbers as in the training data"
        )
    numbers = column.values.astype(np.float64) if parsed is None else parsed
    large = np.abs(numbers) > LARGEST
    if large.any():
        row = int(large.argmax())
        raise DataError(f"{table.where(row)}: column {name!r} has {_too_large(float(numbers[row]))}")
    return numbers


def _measured(column: Column, unit: str | None) -> Column:
    """Words that are numbers with this unit, as in a column that was declared to be categorical, as numbers."""
    if unit is None or column.kind != "text":
        return column
    found = typed_text(written(column))
    return found if found.unit == unit else column


def _odd(text: str | None) -> bool:
    return text is not None and as_numbers([text]) is None


def _too_large(value: float) -> str:
    if np.isinf(value):
        return "an infinite value; correct it"
    return f"the value {value:g}, which is too large (beyond {LARGEST:g}); correct it, or rescale the column"


def _dates(table: Table, name: str, column: Column, day_first: bool | None) -> np.ndarray:
    """A column's dates (N,), datetime64, read as those of the training data were."""
    if column.kind == "date" and (day_first is None or column.codes is None):
        return column.values
    texts = written(column)
    for row, text in enumerate(texts):
        if as_dates([text], day_first=day_first) is None:
            raise DataError(
                f"{table.where(row)}: {text!r} in column {name!r} is not a date, but must be one as in the "
                "training data; write 2024-01-31"
            )
    dates = as_dates(texts, day_first=day_first)
    assert dates is not None  # each of them is one
    return dates


def _one_hot(column: Column, values: Sequence[str]) -> tuple[np.ndarray, dict[str, int]]:
    """One input per value (N, values), and how many rows hold each value that is none of them."""
    position = {value: index for index, value in enumerate(values)}
    encoded = np.zeros((len(column.values), len(values)), dtype=np.float32)
    unseen: dict[str, int] = {}
    for row, value in enumerate(written(column)):
        if value in position:
            encoded[row, position[value]] = 1.0
        elif value is not None:
            unseen[value] = unseen.get(value, 0) + 1
    return encoded, unseen


class _Unseen(NamedTuple):
    """Values that were not in the training data: where the first is, and how many rows hold each."""

    first: str
    counts: Counter[str]


def _words(name: str, unseen: _Unseen, values: Sequence[str]) -> str:
    count = sum(unseen.counts.values())
    rows = "1 row holds a value" if count == 1 else f"{count} rows hold values"
    new, known = (", ".join(map(repr, list(names)[:10])) for names in (unseen.counts, values))
    return (
        f"column {name!r}: {rows} not in the training data ({new}; first: {unseen.first}), "
        f"treated as other than all known values ({known})"
    )


def _gap(table: Table, row: int, name: str, advice: str | None) -> str:
    advice = advice or (
        "fill it in, or choose --set data.missing=drop (drops such rows) or data.missing=fill "
        "(uses the first task's mean, also when predicting)"
    )
    return f"{table.where(row)}: column {name!r} is missing a value; {advice}"
