"""Columns of a user's table as inputs: numbers as they are, text as one input per value (one-hot)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from metareplay.data.base import Place, named_row
from metareplay.errors import DataError

MISSING = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<NA>", "#N/A"})
"""Text that stands for a missing value."""
MOST_VALUES = 50
"""A text column with more distinct values than this is treated as an identifier or free text."""
CODE = re.compile(r"0[0-9]+")
"""Looks like a number but is probably meant as a name."""
LABEL_NAMES = ("label", "target", "class", "y")
"""Columns that are used as the label unless another is named."""


@dataclass(frozen=True)
class Column:
    """One column: float64 (missing: NaN), bool, or objects (text, encoded images; missing: None)."""

    kind: Literal["number", "text", "image", "other"]
    values: np.ndarray
    doubt: str | None = None
    """Why this text is probably not categorical; irrelevant where the column names the task or is ignored."""
    codes: np.ndarray | None = None
    """Numbers as written, if some have a leading zero, as in 01: as labels or tasks they are names."""

    @property
    def names(self) -> np.ndarray:
        """The values as names instead of measurements."""
        return self.values if self.codes is None else self.codes

    def rows(self, chosen: np.ndarray) -> "Column":
        """Only some rows, selected by a boolean mask (N,)."""
        return replace(self, values=self.values[chosen], codes=None if self.codes is None else self.codes[chosen])


@dataclass(frozen=True)
class Table:
    """Rows of a file, or of several."""

    columns: Mapping[str, Column]
    places: tuple[Place, ...]
    test: np.ndarray | None = None
    """Which rows are for testing (N,), where that is known."""

    def __len__(self) -> int:
        return sum(len(place.names) for place in self.places)

    def where(self, row: int) -> str:
        """File and row."""
        return named_row(self.places, row)

    def column(self, name: str, purpose: str) -> Column:
        """A column by its name."""
        if name not in self.columns:
            raise DataError(
                f"{self.source()} has no column {name!r} ({purpose}); "
                f"it has {', '.join(map(repr, list(self.columns)[:20]))}"
            )
        return self.columns[name]

    def source(self) -> str:
        """The file, or the first of several."""
        return self.places[0].text.partition(", ")[0] if self.places else "the table"

    def keep(self, rows: np.ndarray) -> "Table":
        """Only some rows, selected by a boolean mask (N,)."""
        columns = {name: column.rows(rows) for name, column in self.columns.items()}
        places, start = [], 0
        for text, names in self.places:
            kept = rows[start : start + len(names)]
            places.append(Place(text, [name for name, keep in zip(names, kept.tolist(), strict=True) if keep]))
            start += len(names)
        return Table(columns, tuple(places), None if self.test is None else self.test[rows])


def text_column(name: str, cells: Sequence[str | None], where: Callable[[int], str]) -> Column:
    """A column of cells as written: numbers if all are, else text, doubtful if most cells are numbers."""
    texts = [None if cell is None or cell in MISSING else cell for cell in cells]
    numbers = as_numbers(texts)
    if numbers is not None:
        coded = any(CODE.fullmatch(text) for text in set(texts) if text is not None)
        return Column("number", numbers, codes=_objects(texts) if coded else None)
    seen = list(dict.fromkeys(text for text in texts if text is not None))
    words = {text for text in seen if as_numbers([text]) is None}
    commas = {text for text in words if as_numbers([text.replace(",", ".", 1)]) is not None}
    odd, advice = words, "is not a number, but most others are; correct it, or leave it empty if the value is missing"
    if 2 * len(commas) > len(seen):
        odd, advice = commas, "has a decimal comma; write numbers with a decimal point"
    elif 2 * len(words) >= len(seen):
        return Column("text", _objects(texts))
    row = next(row for row, text in enumerate(texts) if text in odd)  # mostly numbers: a typo, not a category
    return Column("text", _objects(texts), f"{where(row)}: the cell {texts[row]!r} in column {name!r} {advice}")


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


def as_numbers(texts: Sequence[str | None]) -> np.ndarray | None:
    """Text as float64, NaN where missing; None if any of it is not a number."""
    try:
        return np.array(["nan" if text is None else text for text in texts], dtype=np.str_).astype(np.float64)
    except ValueError:
        return None


def _objects(values: Iterable[Any]) -> np.ndarray:
    listed = list(values)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array


def joined(train: Table, test: Table) -> Table:
    """Training rows followed by test rows, which must have the same columns."""
    columns = {}
    for name, column in train.columns.items():
        test_column = test.column(name, "the training data have it")
        doubt = column.doubt or test_column.doubt
        if column.kind != test_column.kind and doubt is not None:  # numbers in one file, mostly numbers in the other
            column, test_column = (Column("text", _objects(written(part))) for part in (column, test_column))
        if column.kind != test_column.kind:
            raise DataError(
                f"column {name!r} holds {column.kind} in {train.source()} but {test_column.kind} in {test.source()}; "
                "make them match"
            )
        coded = column.codes is not None or test_column.codes is not None
        codes = np.concatenate([_objects(written(part)) for part in (column, test_column)]) if coded else None
        columns[name] = Column(column.kind, np.concatenate([column.values, test_column.values]), doubt, codes)
    marks = np.concatenate([np.zeros(len(train), dtype=bool), np.ones(len(test), dtype=bool)])
    return Table(columns, (*train.places, *test.places), marks)


def label_name(table: Table, requested: str | None) -> str:
    """The column to predict."""
    if requested is not None:
        table.column(requested, "--label names it")
        return requested
    candidates = [name for name in LABEL_NAMES if name in table.columns]
    if not candidates:
        raise DataError(
            f"{table.source()} has no column called {', '.join(LABEL_NAMES[:-1])} or {LABEL_NAMES[-1]}; "
            f"name the one to predict with --label: {', '.join(map(repr, list(table.columns)[:20]))}"
        )
    return candidates[0]


def describe_columns(table: Table, names: Sequence[str]) -> list[dict[str, Any]]:
    """How columns become inputs, as plain values: numbers by name, text also with its values in order."""
    described: list[dict[str, Any]] = []
    for name in names:
        column = table.columns[name]
        if column.kind in ("other", "image"):
            raise DataError(
                f"{table.source()}: column {name!r} holds neither numbers nor text; leave it out with --ignore {name}"
            )
        if column.kind == "number":
            if len(column.values) and np.isnan(column.values.astype(np.float64)).all():
                raise DataError(f"{table.source()}: column {name!r} is empty; leave it out with --ignore {name}")
            described.append({"name": name})
            continue
        values = sorted({value for value in column.values.tolist() if value is not None})
        if len(values) > MOST_VALUES:
            raise DataError(
                f"{table.source()}: the text column {name!r} has {len(values)} different values (e.g. {values[0]!r}); "
                f"with more than {MOST_VALUES} it is not a category: leave it out with --ignore {name}, "
                "or turn it into numbers"
            )
        described.append({"name": name, "values": values})
    return described


def encode_columns(table: Table, described: Sequence[Mapping[str, Any]], *, gaps: bool) -> np.ndarray:
    """Inputs (N, D), float32; missing numbers are NaN and missing text all zeros with ``gaps``, else refused."""
    parts = []
    for entry in described:
        name = entry["name"]
        column = table.column(name, "the model's inputs need it")
        if "values" in entry:
            parts.append(_one_hot(table, name, column, entry["values"], gaps))
            continue
        if column.kind != "number":
            if column.doubt is not None:
                raise DataError(column.doubt)
            raise DataError(
                f"{table.where(0)}: column {name!r} holds {column.kind}, but must hold numbers as in the training data"
            )
        numbers = column.values.astype(np.float64)
        wrong = np.isinf(numbers) if gaps else ~np.isfinite(numbers)
        if wrong.any():
            raise DataError(_gap(table, int(wrong.argmax()), name, infinite=bool(np.isinf(numbers[wrong.argmax()]))))
        parts.append(numbers[:, None].astype(np.float32))  # (N,) -> (N, 1)
    return np.concatenate(parts, axis=1)  # (N, D)


def _one_hot(table: Table, name: str, column: Column, values: Sequence[str], gaps: bool) -> np.ndarray:
    """One input per value: (N, values)."""
    position = {value: index for index, value in enumerate(values)}
    encoded = np.zeros((len(column.values), len(values)), dtype=np.float32)
    for row, value in enumerate(written(column)):
        if value is None:
            if not gaps:
                raise DataError(_gap(table, row, name))
        elif value not in position:
            known = ", ".join(map(repr, values[:10]))
            raise DataError(
                f"{table.where(row)}: {value!r} in column {name!r} was not in the training data; known: {known}"
            )
        else:
            encoded[row, position[value]] = 1.0
    return encoded


def written(column: Column) -> list[str | None]:
    """A column's values as text; whole numbers without a trailing .0, as tables write them."""
    if column.kind != "number" or column.codes is not None:
        return [None if value is None else str(value) for value in column.names.tolist()]
    numbers = column.values.tolist()
    return [
        None if value != value else str(int(value)) if float(value).is_integer() else str(value) for value in numbers
    ]


def _gap(table: Table, row: int, name: str, *, infinite: bool = False) -> str:
    if infinite:
        return f"{table.where(row)}: column {name!r} has an infinite value; correct it"
    return (
        f"{table.where(row)}: column {name!r} is missing a value; fill it in, or train with --set data.missing=drop "
        "(drops such rows) or data.missing=fill (uses the first task's mean, also when predicting)"
    )
