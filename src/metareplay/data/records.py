"""Rows as JSON gives them, objects with the names of columns, as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from metareplay.data.base import Place
from metareplay.data.cells import DETECTED, TextFormat
from metareplay.data.columns import Table
from metareplay.data.frames import object_column
from metareplay.errors import DataError


def records_table(rows: Sequence[Mapping[str, Any]], name: str, form: TextFormat = DETECTED) -> Table:
    """One column for every name that any row has; a row without it has no value there."""
    names = list(dict.fromkeys(column for row in rows for column in row))
    if not rows or not names:
        raise DataError(f"{name} has no rows; give at least one, with the names of the columns")
    columns = {column: object_column([_cell(row.get(column)) for row in rows], form) for column in names}
    return Table(columns, (Place(f"{name}, row ", range(len(rows))),))


def _cell(value: Any) -> Any:
    """None where there is nothing: JSON has no other word for it, but Python's reader accepts NaN."""
    return None if isinstance(value, float) and value != value else value
