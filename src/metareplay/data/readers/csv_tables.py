"""CSV files with a header: separated by commas, semicolons or tabs, in UTF-8, UTF-16 or Latin-1."""

import codecs
import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from metareplay.data.base import Place
from metareplay.data.cells import DETECTED, TextFormat, as_numbers, text_column
from metareplay.data.columns import Column, Table
from metareplay.errors import DataError

CSV_SUFFIXES = (".csv", ".tsv")
WESTERN = "cp1252"
"""Latin-1 with the characters that Windows adds; what is not UTF-8 is most often this."""


class Decoded(NamedTuple):
    """A text file's content, and its encoding unless that is UTF-8 or was given."""

    text: str
    detected: str | None = None


def read_csv(path: Path, form: TextFormat = DETECTED, keep: Sequence[str] = ()) -> Table:
    """The table in a file with a header; every row has as many cells as the header."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    return csv_table(content, str(path), form, keep)


def csv_table(content: bytes, name: str, form: TextFormat = DETECTED, keep: Sequence[str] = ()) -> Table:
    """The table in the content of a file; columns to keep are also copied as written."""
    text, detected = decoded(content, name, form.encoding)
    rows, lines = [], []
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator(text))
        for row in reader:
            if row:
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(f"{name} cannot be read as CSV ({error}); the file is corrupt or not CSV") from error
    notes = () if detected is None else (f"{name} is not UTF-8 and was read as {detected}",)
    return _table(name, rows, lines, form, keep, notes)


def separator(text: str) -> str:
    """The separator of a text's columns: the one that its first line has most of."""
    return max(",;\t", key=text.partition("\n")[0].count)


def decoded(content: bytes, name: str, encoding: str | None = None) -> Decoded:
    """The text in a file: in the given encoding, else UTF-8, UTF-16 if it says so, else Windows-1252 or Latin-1."""
    if encoding is not None:
        try:
            return Decoded(content.decode(encoding))
        except LookupError as error:
            raise DataError(f"the encoding {encoding!r} is unknown; write e.g. utf-8, latin-1 or cp1250") from error
        except UnicodeDecodeError as error:
            raise DataError(f"{name} is not {encoding} text (byte {error.start}); give its encoding") from error
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return Decoded(_decode(content, name, "utf-16"), "UTF-16")
    if b"\0" in content:
        raise DataError(f"{name} is not text (byte {content.index(0)} is zero); save it as CSV")
    try:
        return Decoded(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        pass
    try:
        return Decoded(content.decode(WESTERN), "Windows-1252 (Latin-1)")
    except UnicodeDecodeError:
        return Decoded(content.decode("latin-1"), "Latin-1")


def _decode(content: bytes, name: str, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not {encoding} text (byte {error.start}); save it as CSV in UTF-8") from error


def _table(
    path: str,
    rows: list[list[str]],
    lines: list[int],
    form: TextFormat,
    keep: Sequence[str],
    notes: tuple[str, ...],
) -> Table:
    header = check_header(path, rows[0] if rows else [], some=len(rows) > 1)
    for row, line in zip(rows[1:], lines[1:], strict=True):
        check_row(path, row, line, len(header))
    place = Place(f"{path}, line ", lines[1:])
    cells = dict(zip(header, zip(*rows[1:], strict=True), strict=True))
    columns = _columns(cells, place, form)
    return Table(columns, (place,), kept={name: cells[name] for name in keep if name in cells}, notes=notes)


def check_header(path: str, row: Sequence[str], *, some: bool) -> list[str]:
    """The names of the columns; ``some``: there are rows below."""
    if not some:
        raise DataError(f"{path} has no rows; give a header with the names of the columns, and at least one row")
    header = [name.strip() for name in row]
    if all(as_numbers([name]) is not None for name in header):
        raise DataError(f"{path} has no header: its first line holds numbers; put the names of the columns there")
    for name in header:
        if not name or header.count(name) > 1:
            problem = f"two columns called {name!r}" if name else "a column without a name"
            raise DataError(f"{path}: the header has {problem}; rename it")
    return header


def check_row(path: str, row: Sequence[str], line: int, cells: int) -> None:
    """Refuse a row that has more or fewer cells than the header."""
    if len(row) != cells:
        raise DataError(f"{path}, line {line} has {len(row)} cells, the header {cells}; correct the line")


def _columns(cells: dict[str, tuple[str, ...]], place: Place, form: TextFormat) -> dict[str, Column]:
    """The columns; numbers like 1,234 are read like those whose decimal sign is certain."""

    def column(name: str, form: TextFormat) -> Column:
        texts = [cell.strip() for cell in cells[name]]
        return text_column(name, texts, lambda row: f"{place.text}{place.names[row]}", form)

    columns = {name: column(name, form) for name in cells}
    signs = {part.decimal for part in columns.values()} - {None}
    if form.decimal is None and len(signs) == 1:
        certain = form._replace(decimal=signs.pop())
        doubtful = [name for name, part in columns.items() if part.doubt is not None]
        columns |= {name: column(name, certain) for name in doubtful}
    return columns
