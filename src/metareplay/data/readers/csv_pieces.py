"""Large CSV files in pieces: a first pass determines what the columns hold, and only a few rows are kept at a time."""

import codecs
import csv
import io
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from metareplay.data.base import Place
from metareplay.data.cells import DETECTED, MISSING, TextFormat
from metareplay.data.columns import Column, Table, objects
from metareplay.data.detecting import ColumnKind, Detector
from metareplay.data.readers.csv_tables import WESTERN, check_header, check_row, separator
from metareplay.errors import DataError

BLOCK = 1 << 20
CELLS = 40_000
"""Cells of a piece, about."""
Lines = Sequence[int]


class Piece(NamedTuple):
    """Some rows as written, and the lines that they end on."""

    rows: list[list[str]]
    lines: list[int]


class TextFile(NamedTuple):
    """A text file whose encoding is known, because all of it was tried."""

    path: Path
    encoding: str
    detected: str | None
    separator: str

    @classmethod
    def found(cls, path: Path, encoding: str | None) -> "TextFile":
        """As ``csv_tables.decoded``, but without the text."""
        try:
            with path.open("rb") as file:
                chosen, detected = _encoding(file, str(path), encoding)
            with path.open(encoding=chosen, newline="") as text:
                return cls(path, chosen, detected, separator(text.read(BLOCK)))
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}") from error

    def pieces(self) -> Iterator[Piece]:
        """The header alone, then all rows that are not empty, a piece at a time."""
        try:
            with self.path.open(encoding=self.encoding, newline="") as text:
                reader = csv.reader(text, delimiter=self.separator)
                rows = ((row, reader.line_num) for row in reader if row)
                header = list(islice(rows, 1))
                size = max(1, CELLS // max(1, len(header[0][0]) if header else 1))
                part = header
                while part:
                    yield Piece([row for row, _ in part], [line for _, line in part])
                    part = list(islice(rows, size))
        except csv.Error as error:
            raise DataError(f"{self.path} cannot be read as CSV ({error}); the file is corrupt or not CSV") from error
        except OSError as error:
            raise DataError(f"{self.path} cannot be read: {error.strerror or error}") from error


def _encoding(file: io.BufferedReader, name: str, given: str | None) -> tuple[str, str | None]:
    """The encoding of a file, and its name for people unless it is UTF-8 or was given."""
    if given is not None:
        try:
            codecs.lookup(given)
        except LookupError as error:
            raise DataError(f"the encoding {given!r} is unknown; write e.g. utf-8, latin-1 or cp1250") from error
        if (wrong := _wrong_byte(file, given)) is not None:
            raise DataError(f"{name} is not {given} text (byte {wrong}); give its encoding")
        return given, None
    if file.peek(2).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        if (wrong := _wrong_byte(file, "utf-16")) is not None:
            raise DataError(f"{name} is not utf-16 text (byte {wrong}); save it as CSV in UTF-8")
        return "utf-16", "UTF-16"
    for start, block in _blocks(file):
        if 0 in block:
            raise DataError(f"{name} is not text (byte {start + block.index(0)} is zero); save it as CSV")
    if _wrong_byte(file, "utf-8-sig") is None:
        return "utf-8-sig", None
    return (WESTERN, "Windows-1252 (Latin-1)") if _wrong_byte(file, WESTERN) is None else ("latin-1", "Latin-1")


def _blocks(file: io.BufferedReader) -> Iterator[tuple[int, bytes]]:
    """The content, and where each block begins."""
    file.seek(0)
    start = 0
    while block := file.read(BLOCK):
        yield start, block
        start += len(block)


def _wrong_byte(file: io.BufferedReader, encoding: str) -> int | None:
    """The first byte that is wrong in an encoding; None if all are right."""
    decoder = codecs.getincrementaldecoder(encoding)()
    end = 0
    for start, block in _blocks(file):
        kept, end = len(decoder.getstate()[0]), start + len(block)
        try:
            decoder.decode(block)
        except UnicodeDecodeError as error:
            return start - kept + error.start
    try:
        kept = len(decoder.getstate()[0])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        return end - kept + error.start
    return None


class CsvPieces:
    """The rows of a file as small tables, in order; the file is read again each time."""

    def __init__(self, file: TextFile, kinds: Mapping[str, ColumnKind], header: Sequence[str]) -> None:
        self._file, self._kinds, self._header = file, kinds, header

    def tables(self, names: Sequence[str]) -> Iterator[Table]:
        """These columns of all rows."""
        positions = {name: self._header.index(name) for name in dict.fromkeys(names)}
        for rows, lines in islice(self._file.pieces(), 1, None):
            columns = {name: self._kinds[name].column(_texts(rows, position)) for name, position in positions.items()}
            yield Table(columns, (Place(f"{self._file.path}, line ", lines),))


def encoding_found(path: Path) -> str:
    """The encoding that a file seems to have."""
    return TextFile.found(path, None).encoding


def read_csv_in_pieces(
    path: Path, form: TextFormat = DETECTED, *, ignore: Collection[str] = (), used: Collection[str | None] | None = None
) -> Table:
    """A table whose columns hold a few telling cells; its pieces hold the rows.

    Columns to ignore, and with ``used`` all others, are not looked at.
    """
    file = TextFile.found(path, form.encoding)
    header, lines, detectors = _detected(file, form, lambda name: name not in ignore and (used is None or name in used))
    place = Place(f"{path}, line ", lines)
    kinds = _kinds(detectors, place, form)
    columns = {name: detectors[name].sample(kind) for name, kind in kinds.items()}
    unseen = Column("other", objects([]))
    notes = () if file.detected is None else (f"{path} is not UTF-8 and was read as {file.detected}",)
    ordered = {name: columns.get(name, unseen) for name in header}
    return Table(ordered, (place,), notes=notes, pieces=CsvPieces(file, kinds, header))


class Detected(NamedTuple):
    """The header, the lines of the rows, and what was seen of the columns."""

    header: list[str]
    lines: Lines
    detectors: dict[str, Detector]


def _detected(file: TextFile, form: TextFormat, is_used: Callable[[str], bool]) -> Detected:
    """A first pass over the file, and a second one over columns that are not what they seemed to be."""
    pieces = file.pieces()
    first, second = next(pieces, None), next(pieces, None)
    header = check_header(str(file.path), [] if first is None else first.rows[0], some=second is not None)
    detectors = {name: Detector(name) for name in header}
    looked_at = {name: position for position, name in enumerate(header) if is_used(name)}
    lines = array("q")
    while second is not None:
        for row, line in zip(*second, strict=True):
            check_row(str(file.path), row, line, len(header))
        for name, position in looked_at.items():
            detectors[name].add(_texts(second.rows, position))
        lines.extend(second.lines)
        second = next(pieces, None)
    again = {name: position for name, position in looked_at.items() if detectors[name].again(form)}
    if again:
        detectors |= {name: Detector(name, thorough=True) for name in again}
        for rows, _ in islice(file.pieces(), 1, None):
            for name, position in again.items():
                detectors[name].add(_texts(rows, position))
    consecutive = lines[-1] - lines[0] == len(lines) - 1
    return Detected(header, range(lines[0], lines[-1] + 1) if consecutive else lines, detectors)


def _kinds(detectors: Mapping[str, Detector], place: Place, form: TextFormat) -> dict[str, ColumnKind]:
    """What the columns are; numbers like 1,234 are read like those whose decimal sign is certain."""

    def where(row: int) -> str:
        return f"{place.text}{place.names[row]}"

    kinds = {name: detector.kind(form, where) for name, detector in detectors.items() if detector.rows}
    signs = {kind.decimal for kind in kinds.values()} - {None}
    if form.decimal is None and len(signs) == 1:
        certain = form._replace(decimal=signs.pop())
        kinds |= {name: detectors[name].kind(certain, where) for name, kind in kinds.items() if kind.doubt is not None}
    return kinds


def _texts(rows: Sequence[Sequence[str]], position: int) -> list[str | None]:
    """The cells of one column; None where missing."""
    return [None if (text := row[position].strip()) in MISSING else text for row in rows]
