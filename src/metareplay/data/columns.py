"""A user's table: columns of numbers, text, dates or images, by name, and where its rows come from."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

from metareplay.data.base import Place, named_row
from metareplay.data.dates import written_dates
from metareplay.errors import DataError

LABEL_NAMES = ("label", "target", "class", "y")
"""Columns that are used as the label unless another is named."""
Decimal = Literal["point", "comma"]
"""The decimal sign of numbers that contain commas."""


@dataclass(frozen=True)
class Column:
    """One column: float64 (missing: NaN), bool, datetime64 (missing: NaT), or objects (text, images; missing: None)."""

    kind: Literal["number", "text", "date", "image", "other"]
    values: np.ndarray
    doubt: str | None = None
    """Why this text is probably not categorical; irrelevant where the column names the task or is ignored."""
    codes: np.ndarray | None = None
    """The cells as written where they say more than the values: as labels or tasks, 01, true and dates are names."""
    decimal: Decimal | None = None
    """The decimal sign, if the numbers were written with commas."""
    day_first: bool | None = None
    """Whether the day comes first, if dates were written as 31/01/2024."""
    unit: str | None = None
    """What the numbers were written with: %, a currency, kg; such numbers are names in labels and tasks."""
    categories: tuple[str, ...] | None = None
    """All values that text may have, if that was declared."""
    convert: str | None = None
    """How values that are not numbers, dates or text could be turned into such, if that is known."""

    @property
    def names(self) -> np.ndarray:
        """The values as names instead of measurements."""
        if self.codes is not None:
            return self.codes
        return objects(written(self)) if self.kind == "date" else self.values

    def rows(self, chosen: np.ndarray) -> "Column":
        """Only some rows, selected by a boolean mask (N,)."""
        return replace(self, values=self.values[chosen], codes=None if self.codes is None else self.codes[chosen])

    def sharing(self, same: dict[Any, Any]) -> "Column":
        """Equal texts as one object, among all columns that are given the same dictionary."""

        def shared(values: np.ndarray) -> np.ndarray:
            return objects(same.setdefault(value, value) for value in values.tolist())

        values = shared(self.values) if self.kind == "text" else self.values
        return replace(self, values=values, codes=None if self.codes is None else shared(self.codes))

    @property
    def missing(self) -> np.ndarray:
        """Which rows have no value (N,), bool."""
        if self.kind == "number":
            return np.isnan(self.values.astype(np.float64))
        if self.kind == "date":
            return np.isnat(self.values)
        return np.array([value is None for value in self.values.tolist()], dtype=bool)


@dataclass(frozen=True)
class Table:
    """Rows of a file, or of several."""

    columns: Mapping[str, Column]
    places: tuple[Place, ...]
    test: np.ndarray | None = None
    """Which rows are for testing (N,), where that is known."""
    kept: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Columns that were requested as they are in the file."""
    notes: tuple[str, ...] = ()
    """What a user should know about how the file was read."""
    pieces: "Pieces | None" = None
    """The rows of a large file; its columns then hold only a few cells, from which they can be described."""

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
        columns = {} if self.pieces else {name: column.rows(rows) for name, column in self.columns.items()}
        places, start = [], 0
        for text, names in self.places:
            kept = rows[start : start + len(names)]
            places.append(Place(text, [name for name, keep in zip(names, kept.tolist(), strict=True) if keep]))
            start += len(names)
        test = None if self.test is None else self.test[rows]
        if self.pieces is None:
            return replace(self, columns=columns, places=tuple(places), test=test)
        columns = {name: c.rows(rows) if len(c.values) == len(rows) else c for name, c in self.columns.items()}
        return replace(self, columns=columns, places=tuple(places), test=test, pieces=KeptPieces(self.pieces, rows))

    def tables(self, names: Sequence[str]) -> "Iterator[Table]":
        """These columns of all rows, a piece at a time; the table itself if it has no pieces."""
        yield from [self] if self.pieces is None else self.pieces.tables(names)

    def whole(self, names: Iterable[str | None]) -> "Table":
        """With all cells of these columns."""
        wanted = [name for name in dict.fromkeys(names) if name is not None and name in self.columns]
        if self.pieces is None or not wanted:
            return self
        parts: dict[str, list[Column]] = {name: [] for name in wanted}
        same: dict[Any, Any] = {}  # one object for equal texts
        for table in self.pieces.tables(wanted):
            for name in wanted:
                parts[name].append(table.columns[name].sharing(same))
        return replace(self, columns={**self.columns, **{name: concatenated(part) for name, part in parts.items()}})


class Pieces(Protocol):
    """The rows of a large file, read again each time."""

    def tables(self, names: Sequence[str]) -> Iterator[Table]:
        """These columns of all rows, in order, as small tables."""
        ...


class KeptPieces:
    """Only some rows of pieces, selected by a boolean mask (N,)."""

    def __init__(self, pieces: Pieces, rows: np.ndarray) -> None:
        self._pieces, self._rows = pieces, rows

    def tables(self, names: Sequence[str]) -> Iterator[Table]:
        """These columns of the rows that are kept."""
        start = 0
        for table in self._pieces.tables(names):
            rows = self._rows[start : start + len(table)]
            start += len(table)
            if rows.any():
                yield table.keep(rows)


def concatenated(parts: Sequence[Column]) -> Column:
    """A column from all its pieces."""
    values = np.concatenate([part.values for part in parts])
    codes = None if parts[0].codes is None else np.concatenate([c for part in parts if (c := part.codes) is not None])
    return replace(parts[0], values=values, codes=codes)


def joined(train: Table, test: Table) -> Table:
    """Training rows followed by test rows, which must have the same columns."""
    columns = {}
    for name, column in train.columns.items():
        test_column = test.column(name, "the training data have it")
        doubt = column.doubt or test_column.doubt
        if column.kind != test_column.kind and doubt is not None:  # numbers in one file, mostly numbers in the other
            column, test_column = (Column("text", objects(written(part))) for part in (column, test_column))
        if column.kind != test_column.kind:
            raise DataError(
                f"column {name!r} holds {column.kind} in {train.source()} but {test_column.kind} in {test.source()}; "
                "make them match"
            )
        if column.kind == "number" and column.unit != test_column.unit:
            raise DataError(
                f"column {name!r} has {of_unit(column.unit)} in {train.source()}, but {of_unit(test_column.unit)} in "
                f"{test.source()}; make them match"
            )
        coded = column.codes is not None or test_column.codes is not None
        codes = np.concatenate([objects(written(part)) for part in (column, test_column)]) if coded else None
        columns[name] = Column(
            column.kind,
            np.concatenate([column.values, test_column.values]),
            doubt,
            codes,
            column.decimal or test_column.decimal,
            test_column.day_first if column.day_first is None else column.day_first,
            column.unit,
        )
    marks = np.concatenate([np.zeros(len(train), dtype=bool), np.ones(len(test), dtype=bool)])
    return Table(columns, (*train.places, *test.places), marks, notes=tuple(dict.fromkeys((*train.notes, *test.notes))))


def of_unit(unit: str | None) -> str:
    """Numbers with or without a unit, in words."""
    return f"numbers with {unit!r}" if unit else "numbers without a unit"


def decimal_of(table: Table, names: Sequence[str]) -> Decimal | None:
    """The decimal sign of columns whose numbers were written with commas; None if there is none, or not one alone."""
    signs = {sign for name in names if (sign := table.columns[name].decimal) is not None}
    return signs.pop() if len(signs) == 1 else None


def label_name(table: Table, requested: str | None) -> str:
    """The column to predict."""
    if requested is not None:
        parts = [part.strip() for part in requested.split(",")]
        if requested not in table.columns and len(parts) > 1 and all(part in table.columns for part in parts):
            raise DataError(
                f"--label {requested} names {len(parts)} columns, but the command line learns one target: name one, "
                "and leave the others out with --ignore. Several targets are learned in Python, by a two-dimensional y "
                f"(ContinualRegressor().learn_task(X, frame[{parts!r}]))"
            )
        table.column(requested, "--label names it")
        return requested
    candidates = [name for name in LABEL_NAMES if name in table.columns]
    if not candidates:
        raise DataError(
            f"{table.source()} has no column called {', '.join(LABEL_NAMES[:-1])} or {LABEL_NAMES[-1]}; "
            f"name the one to predict with --label: {', '.join(map(repr, list(table.columns)[:20]))}"
        )
    return candidates[0]


def written(column: Column) -> list[str | None]:
    """A column's values as text; integers without a trailing .0, as tables write them."""
    if column.kind == "date" and column.codes is None:
        return written_dates(column.values)
    if column.kind != "number" or column.codes is not None:
        return [None if value is None else str(value) for value in column.names.tolist()]
    numbers = column.values.tolist()
    return [
        None if value != value else str(int(value)) if float(value).is_integer() else str(value) for value in numbers
    ]


def objects(values: Iterable[Any]) -> np.ndarray:
    """Values as an array of objects (N,)."""
    listed = list(values)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array
