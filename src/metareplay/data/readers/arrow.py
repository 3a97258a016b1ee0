"""Parquet files and Hugging Face data sets as tables: numbers, text, dates, class labels by name, encoded images."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from metareplay.data.base import Place
from metareplay.data.cells import DETECTED, TextFormat, typed_text
from metareplay.data.columns import Column, Table, objects
from metareplay.data.inside import path_inside
from metareplay.data.readers.parquet import INSTALL_HINT
from metareplay.errors import DataError
from metareplay.limits import GB, refuse_beyond
from metareplay.texts import read_json


def read_parquet_table(files: Sequence[Path], keep: Sequence[str] = ()) -> Table:
    """The rows of all files, one after another; columns to keep are also copied as plain values."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(INSTALL_HINT) from error
    tables, places = [], []
    for file in files:
        try:
            tables.append(_read_parquet(parquet.ParquetFile(file), file))
        except (DataError, MemoryError):
            raise
        except Exception as error:  # damaged files make the library raise almost anything
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(
                f"cannot read {file} ({reason}); the file is truncated, corrupt or not parquet: copy it again"
            ) from error
        places.append(Place(f"{file}, row ", range(tables[-1].num_rows)))
    try:
        table = pyarrow.concat_tables(tables)
    except pyarrow.ArrowException as error:
        raise DataError(
            f"the files {', '.join(file.name for file in files)} in {files[0].parent} have different columns"
        ) from error
    kept = {name: table.column(name).to_pylist() for name in keep if name in table.column_names}
    names, root = class_names(table.schema.metadata or {}), files[0].parent
    return replace(from_arrow(table, tuple(places), names, root=root), kept=kept)


def _read_parquet(opened: Any, file: Path) -> Any:
    """The table in a file, whose claims are checked before it is read, and whose contents afterwards."""
    about = opened.metadata
    if about.num_rows < 0:
        raise ValueError(f"its header says {about.num_rows} rows")
    claimed = max(
        about.num_rows * about.num_columns, sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    )
    refuse_beyond("memory_gb", claimed / GB, f"{file} claims {about.num_rows:,} rows, in GB at least")
    table = opened.read()
    table.validate(full=True)
    return table


def class_names(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Class names by column, where the Hugging Face library recorded them."""
    try:
        features = read_json(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        return {name: list(about["names"]) for name, about in features.items() if about.get("_type") == "ClassLabel"}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def from_arrow(
    table: Any,
    places: tuple[Place, ...],
    names: Mapping[str, Sequence[str]],
    form: TextFormat = DETECTED,
    *,
    root: Path | None = None,
) -> Table:
    """A pyarrow table's columns; ``form`` says how numbers in text are to be read.

    Images may be named by paths inside ``root``; None: anywhere, for tables that the user made in Python.
    """
    if table.num_rows == 0:
        raise DataError(
            f"{places[0].text.partition(', ')[0] if places else 'the table'} has no rows; give at least one"
        )
    for name in table.column_names:
        if table.column_names.count(name) > 1:
            source = places[0].text.partition(", ")[0] if places else "the table"
            raise DataError(f"{source} has two columns called {name!r}; rename one")
    columns = {name: _readable(name, table.column(name), names.get(name), form, root) for name in table.column_names}
    return Table(columns, places)


def _readable(name: str, column: Any, names: Sequence[str] | None, form: TextFormat, root: Path | None) -> Column:
    """A column; one whose values Python cannot hold is refused by name."""
    try:
        return _column(column, names, form, root)
    except (ValueError, OverflowError, TypeError, ArithmeticError) as error:  # Arrow's own errors are among these
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"column {name!r} ({column.type}) cannot be read ({reason}); leave it out, or repair it"
        ) from error


def _column(column: Any, names: Sequence[str] | None, form: TextFormat, root: Path | None) -> Column:
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if names is not None and types.is_integer(kind):
        values = [
            None if index is None or not 0 <= index < len(names) else names[index] for index in column.to_pylist()
        ]
        return Column("text", objects(values))
    if types.is_boolean(kind) and not column.null_count:
        return Column("number", np.array(column.to_pylist(), dtype=bool))
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind):
        return Column(
            "number", np.array([np.nan if v is None else float(v) for v in column.to_pylist()], dtype=np.float64)
        )
    if types.is_timestamp(kind) or types.is_date(kind):
        return Column("date", _seconds(column))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return typed_text(column.to_pylist(), form)
    if types.is_struct(kind) and {kind.field(index).name for index in range(kind.num_fields)} == {"bytes", "path"}:
        return Column("image", objects([None if cell is None else _image(cell, root) for cell in column.to_pylist()]))
    if types.is_binary(kind) or types.is_large_binary(kind):
        return Column("image", objects(column.to_pylist()))
    convert = "convert durations to numbers, for example with pandas' .dt.total_seconds()"
    return Column("other", objects([None] * len(column)), convert=convert if types.is_duration(kind) else None)


def _image(cell: Mapping[str, Any], root: Path | None) -> bytes | Path | None:
    """An encoded image, or the file that holds it."""
    if cell["bytes"] or cell["path"] is None:
        return cell["bytes"] or None
    return path_inside(root, str(cell["path"]), "the table")


def _seconds(column: Any) -> np.ndarray:
    """Dates and times as datetime64 in seconds (N,), in UTC if they have a time zone."""
    import pyarrow

    zone = getattr(column.type, "tz", None)
    return np.asarray(column.cast(pyarrow.timestamp("s", zone), safe=False).to_numpy()).astype("datetime64[s]")
