"""A Markdown table read back into the rows of a record, by the templates that write it: how `make bench` records."""

import re
from collections.abc import Iterator, Sequence

from metareplay.report.records import Figure, Row
from results.tables import Column, Table
from results.values import PLACE

NUMBER = r"-?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[-+]?\d+)?"
EMPTY = ("", "–", "—")


def rows_from(table: Table, markdown: str) -> list[Row]:
    """The rows of the first Markdown table with the definition's headings; cells that say nothing are left out."""
    header = [column.title for column in table.columns]
    lines = [cells(line) for line in markdown.splitlines() if line.startswith("|")]
    headings = [_words(line) for line in lines]
    if _words(header) not in headings:
        raise LookupError(f"there is no table with the headings {header}")
    rows, above = [], [""] * len(header)
    for line in lines[headings.index(_words(header)) + 2 :]:
        if len(line) != len(header):
            break
        one = [
            old if column.once and not new else new for column, new, old in zip(table.columns, line, above, strict=True)
        ]
        rows.append(_row(table.columns, one))
        above = one
    return rows


def _words(line: Sequence[str]) -> list[str]:
    """Headings without their numbers: a machine may have more cores than the last one."""
    return [re.sub(r"\d+", "", cell) for cell in line]


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def _row(columns: Sequence[Column], line: Sequence[str]) -> Row:
    labels: dict[str, str] = {}
    figures: dict[str, Figure] = {}
    for column, cell in zip(columns, line, strict=True):
        if cell.replace("**", "") in {*EMPTY, column.missing}:
            continue
        for key, form, text in _values(column, cell):
            if form is None:
                labels[key] = text
            else:
                value, _, error = text.partition(" ± ")
                spread = float(error.replace(",", "")) if error else None
                figures[key] = Figure(value=float(value.replace(",", "")), unit=column.unit, error=spread)
    return Row(labels=labels, figures=figures)


def _values(column: Column, cell: str) -> Iterator[tuple[str, str | None, str]]:
    """Key, format (None for a label) and text of all that a cell states."""
    for template in [column.cell] if isinstance(column.cell, str) else column.cell:
        match = re.fullmatch(_pattern(template.replace("**", "")), cell.replace("**", ""))
        if match is not None:
            for (key, form), text in zip(_places(template), match.groups(), strict=True):
                yield key, form, text
            return
    raise LookupError(f"{column.title}: {cell!r} is not like {column.cell!r}")


def _places(template: str) -> list[tuple[str, str | None]]:
    return [(match[1], match[2]) for match in PLACE.finditer(template)]


def _pattern(template: str) -> str:
    """What cells of a template look like; labels and figures are groups."""
    pattern, end = "", 0
    for match in PLACE.finditer(template):
        pattern += re.escape(template[end : match.start()])
        figure = NUMBER + (f"(?: ± {NUMBER})?" if (match[2] or "").endswith("±") else "")
        pattern, end = pattern + (f"({figure})" if match[2] is not None else "(.+?)"), match.end()
    return pattern + re.escape(template[end:])
