"""Data frames of pandas and polars, and tables of pyarrow, as tables: columns by name, whatever their order.

None of these libraries is imported: a frame is recognised by its attributes.
"""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from metareplay.arrays import is_missing
from metareplay.data.base import Place
from metareplay.data.cells import DETECTED, TextFormat, typed_text
from metareplay.data.columns import Column, Table, objects
from metareplay.data.dates import from_datetime
from metareplay.errors import DataError

NAME = "the data frame"
CONVERSIONS = {
    "timedelta": "convert durations to numbers with .dt.total_seconds()",
    "period": "convert periods to dates with .dt.to_timestamp()",
}
"""What a column of such values can be turned into."""


def is_frame(x: Any) -> bool:
    """Whether something is a data frame of pandas or polars, or a table of pyarrow."""
    if type(x).__name__ == "LazyFrame":
        raise DataError("a lazy frame has no rows yet; call its method collect() first")
    return type(x).__name__ in ("DataFrame", "Table") and hasattr(x, "columns") and hasattr(x, "shape")


def is_series(x: Any) -> bool:
    """Whether something is one column of a data frame."""
    return type(x).__name__ in ("Series", "ChunkedArray") and (hasattr(x, "to_list") or hasattr(x, "to_pylist"))


def frame_table(frame: Any, form: TextFormat = DETECTED) -> Table:
    """The columns of a data frame; ``form`` says how numbers and dates in text are to be read."""
    names = [str(name) for name in getattr(frame, "column_names", frame.columns)]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise DataError(f"{NAME} has two columns called {twice[0]!r}; rename one of them")
    place = Place(f"{NAME}, row ", range(len(frame)))
    if not len(frame):
        raise DataError(f"{NAME} has no rows; give at least one example")
    if hasattr(frame, "column_names"):
        from metareplay.data.readers.arrow import class_names, from_arrow

        return from_arrow(frame, (place,), class_names(frame.schema.metadata or {}), form)
    return Table({str(name): _column(frame[name], form) for name in frame.columns}, (place,))


def series_values(series: Any) -> list[Any]:
    """A column's values as plain Python values; None where missing."""
    values = series.to_pylist() if hasattr(series, "to_pylist") else series.to_list()
    return [None if is_missing(value) else value for value in values]


def _column(series: Any, form: TextFormat) -> Column:
    """One column of a pandas or polars frame."""
    dtype = series.dtype
    categories = _categories(series)
    if categories is not None:
        values = series_values(series)
        return Column(
            "text",
            objects(None if value is None else str(value) for value in values),
            categories=tuple(str(value) for value in categories),
        )
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        numbers = series.to_numpy()
        return Column("number", numbers if dtype.kind == "b" else numbers.astype(np.float64))
    if isinstance(dtype, np.dtype) and dtype.kind == "M":
        return Column("date", series.to_numpy().astype("datetime64[s]"))
    return object_column(series_values(series), form)


def _categories(series: Any) -> Sequence[Any] | None:
    """The values that a categorical column may have, if its type lists them."""
    listed = getattr(series.dtype, "categories", None)
    kind = type(series.dtype).__name__
    return list(listed) if kind in ("CategoricalDtype", "Enum") and listed is not None else None


def object_column(values: Sequence[Any], form: TextFormat = DETECTED) -> Column:
    """Plain values as a column; the type of the first that is not missing decides."""
    present = [value for value in values if value is not None]
    if all(isinstance(value, bool | np.bool_) for value in present) and len(present) == len(values):
        return Column("number", np.array(values, dtype=bool))
    if all(isinstance(value, bool | int | float | Decimal | np.generic) for value in present):
        return Column("number", np.array([np.nan if value is None else float(value) for value in values]))
    if all(isinstance(value, str) for value in present):
        return typed_text(values, form)
    if all(isinstance(value, date) for value in present):  # also with a time of day
        moments = [np.datetime64("NaT", "s") if value is None else _moment(value) for value in values]
        return Column("date", np.array(moments, dtype="datetime64[s]"))
    kinds = {type(value).__name__ for value in present}
    convert = CONVERSIONS.get(kinds.pop().lower()) if len(kinds) == 1 else None
    return Column("other", objects([None] * len(values)), convert=convert)


def _moment(value: date) -> np.datetime64:
    return from_datetime(value) if isinstance(value, datetime) else np.datetime64(value, "s")
