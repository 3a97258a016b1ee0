"""Predictions as CSV, JSON lines or parquet: the extension of ``--out`` decides."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from metareplay.cli.prediction_columns import Columns
from metareplay.errors import ConfigError

Writer = Callable[[Columns, bool], bytes]
"""Columns as the contents of a file, or of a further part of it."""


PART = 100_000
"""Inputs whose answers are in memory at once."""


def parts(count: int, out: Path | None, whole: bool, batch_wise: int | None) -> list[slice]:
    """Parts of this many inputs, which are answered and written in turn; a single part if a file cannot be
    continued."""
    if whole or (out is not None and out.suffix.lower() == ".parquet"):
        return [slice(0, count)]
    size = PART if batch_wise is None else max(1, PART // batch_wise) * batch_wise
    return [slice(start, start + size) for start in range(0, max(count, 1), size)]


def writer_for(out: Path | None) -> Writer:
    """What turns columns into the contents of this file; CSV for the terminal. Unknown extensions are refused."""
    suffix = ".csv" if out is None else out.suffix.lower()
    if suffix not in WRITERS:
        known = ".csv, .jsonl (one JSON object per line) or .parquet"
        raise ConfigError(f"--out {out}: the extension {suffix!r} is unknown; choose {known}")
    if suffix == ".parquet":
        _pyarrow()  # refused before any work is done
    return WRITERS[suffix]


def as_csv(columns: Columns, first: bool = True) -> bytes:
    """A header, in the first part, and one line per input."""
    text = io.StringIO()
    cells = [values if exact else [_cell(value) for value in values] for _, values, exact in columns]
    header = [[column.name for column in columns]] if first else []
    csv.writer(text, lineterminator="\n").writerows([*header, *zip(*cells, strict=True)])
    return text.getvalue().encode("utf-8", "replace")


def as_json_lines(columns: Columns, first: bool = True) -> bytes:
    """One JSON object per input, numbers in full precision."""
    names = [column.name for column in columns]
    rows = zip(*(column.values for column in columns), strict=True)
    lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, default=str) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def as_parquet(columns: Columns, first: bool = True) -> bytes:
    """A parquet table; labels of different types, and tuples, become text."""
    pyarrow, parquet = _pyarrow()
    content = io.BytesIO()
    parquet.write_table(pyarrow.table({name: _of_one_type(values) for name, values, _ in columns}), content)
    return content.getvalue()


WRITERS: Mapping[str, Writer] = {".csv": as_csv, ".jsonl": as_json_lines, ".parquet": as_parquet}


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value) if isinstance(value, list) else value


def _of_one_type(values: Sequence[Any]) -> Sequence[Any]:
    types = {type(value) for value in values if value is not None}
    if len(types) <= 1 and tuple not in types:
        return values
    return [None if value is None else str(value) for value in values]


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(
            '--out: parquet needs pyarrow; install it with: pip install "metareplay[data]", or choose .csv or .jsonl'
        ) from error
    return pyarrow, parquet
