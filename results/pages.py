"""Pages: what stands between markers is made from records.

``<!-- table: NAME -->`` ... ``<!-- end -->`` holds a table, ``<!--fig:RECORD::FIGURE::FORMAT-->97.1<!--/-->`` a figure
in the text; ``RECORD[label=value]`` chooses rows of a record. ``<!--row:TABLE::ROW::FIGURE::FORMAT-->`` ...
``<!--/-->`` holds our figure for a row of the paper, with its remark.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from metareplay.report.records import Record
from results.marks import MarkedRow, marked_rows, rows_of_the_paper, rows_that_fall_short
from results.origins import origins
from results.tables import Table, figure_key, render
from results.values import Line, filled, lines_of, matching

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- table: ([\w.-]+) -->\n.*?<!-- end -->", re.DOTALL)
FIGURE = re.compile(r"<!--fig:([^>]+?)::([^>]+?)::([^>]*?)-->.*?<!--/-->", re.DOTALL)
ROW = re.compile(r"<!--row:([^>]+?::[^>]+?::[^>]+?::[^>]*?)-->.*?<!--/-->", re.DOTALL)
MARKS: dict[str, Callable[[Mapping[str, Record]], str]] = {
    "paper-rows": rows_of_the_paper,
    "paper-short": rows_that_fall_short,
    "origins": origins,
}
"""Blocks that are not tables of chosen records: all rows of the paper, and what is known of the records themselves."""
SELECTED = re.compile(r"^(.*?)(?:\[(.*)\])?$")


def pages() -> list[Path]:
    """The documents that have markers."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    marked = (BLOCK, FIGURE, ROW)
    return [path for path in every if any(mark.search(path.read_text(encoding="utf-8")) for mark in marked)]


def base_of(page: Path) -> str:
    """The way from a page to the folder of records."""
    return "../" * (len(page.relative_to(ROOT).parts) - 1) + "results"


def generated(text: str, records: Mapping[str, Record], tables: Mapping[str, Table], base: str = "results") -> str:
    """A page with its blocks and figures made again."""

    def block(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n{made(match[1], records, tables, base)}\n<!-- end -->"

    def figure(match: re.Match[str]) -> str:
        shown = filled(f"{{{match[2]}:{match[3]}}}", chosen_line(match[1], records))
        if shown is None:
            raise LookupError(f"{match[1]} has no figure {match[2]}")
        return f"<!--fig:{match[1]}::{match[2]}::{match[3]}-->{shown}<!--/-->"

    rows = list(marked_rows(records)) if ROW.search(text) else []

    def row(match: re.Match[str]) -> str:
        return f"<!--row:{match[1]}-->{of_row(*match[1].split('::'), rows=rows)}<!--/-->"

    return ROW.sub(row, FIGURE.sub(figure, BLOCK.sub(block, text)))


def of_row(table: str, name: str, figure: str, form: str, *, rows: Sequence[MarkedRow]) -> str:
    """Our figure for a row of the paper, with its remark; ``not run`` if there is none."""
    found = [row for row in rows if row.table.name == table and row.row.paper == name]
    if not found or figure not in found[0].row.figures:
        raise LookupError(f"the paper's table {table} has no row {name} with {figure}")
    key = figure_key(figure, batch_wise=found[0].row.batch_wise)
    text = None if found[0].line is None else filled(f"{{{key}:{form}}}", found[0].line)
    if text is None:
        return "not run"
    return f"{text} ({found[0].remark})" if found[0].remark else text


def made(name: str, records: Mapping[str, Record], tables: Mapping[str, Table], base: str = "results") -> str:
    """The content of a block."""
    if name in MARKS:
        return MARKS[name](records)
    if name not in tables:
        raise LookupError(f"there is no table {name}; define it in results/tables/")
    return render(tables[name], records, base).text


def chosen_line(selected: str, records: Mapping[str, Record]) -> Line:
    """The one row, over its seeds, that a marker names."""
    match = SELECTED.match(selected)
    assert match is not None
    where = dict(pair.split("=", 1) for pair in (match[2] or "").split(";") if pair)
    lines = lines_of(matching(records, [match[1]]), where)
    if len(lines) != 1:
        raise LookupError(f"{selected} names {len(lines)} rows; choose one by RECORD[label=value]")
    return lines[0]
