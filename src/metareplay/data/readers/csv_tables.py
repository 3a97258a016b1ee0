"""CSV files with a header: separated by commas, semicolons or tabs."""

import csv
from pathlib import Path

from metareplay.data.base import Place
from metareplay.data.columns import Table, as_numbers, text_column
from metareplay.errors import DataError

CSV_SUFFIXES = (".csv", ".tsv")


def read_csv(path: Path) -> Table:
    """The table in a file with a header; every row has as many cells as the header."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=first.count))
            rows, lines = [], []
            for row in reader:
                if row:
                    rows.append(row)
                    lines.append(reader.line_num)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); save it as CSV in UTF-8") from error
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as CSV ({error}); the file is corrupt or not CSV") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    return _table(path, rows, lines)


def _table(path: Path, rows: list[list[str]], lines: list[int]) -> Table:
    if len(rows) < 2:
        raise DataError(f"{path} has no rows; give a header with the names of the columns, and at least one row")
    header = [name.strip() for name in rows[0]]
    if all(as_numbers([name]) is not None for name in header):
        raise DataError(f"{path} has no header: its first line holds numbers; put the names of the columns there")
    for name in header:
        if not name or header.count(name) > 1:
            problem = f"two columns called {name!r}" if name else "a column without a name"
            raise DataError(f"{path}: the header has {problem}; rename it")
    for row, line in zip(rows[1:], lines[1:], strict=True):
        if len(row) != len(header):
            raise DataError(f"{path}, line {line} has {len(row)} cells, the header {len(header)}; correct the line")
    place = Place(f"{path}, line ", lines[1:])
    cells = zip(*rows[1:], strict=True)
    columns = {
        name: text_column(name, [cell.strip() for cell in column], lambda row: f"{place.text}{place.names[row]}")
        for name, column in zip(header, cells, strict=True)
    }
    return Table(columns, (place,))
