"""Every row of the paper's tables, ours beside it, marked as ``metareplay reproduce`` marks it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from metareplay.paper.comparison import FIGURES, Comparison
from metareplay.paper.tables import PaperRow, PaperTable, paper_tables
from metareplay.report.base import Estimate, Kind, show
from metareplay.report.records import Record
from metareplay.report.records.runs import ASIDE
from results.tables import figure_key
from results.values import Line, lines_of

LENGTH = {"training.iterations", "training.epochs"}
SHORT_NAMES = {"tgiven_during": "During", "tgiven_final": "Final", "tinfer_final": "inferred"}


@dataclass(frozen=True)
class MarkedRow:
    """A row of the paper beside ours; no line: it was never run."""

    table: PaperTable
    row: PaperRow
    line: Line | None

    @property
    def comparisons(self) -> list[Comparison]:
        """Each of the row's figures that we have, beside the paper's."""
        found = []
        for figure, (paper, error) in self.row.figures.items():
            ours = None if self.line is None else self.line.estimate(figure_key(figure, batch_wise=self.row.batch_wise))
            lower = figure in ("seconds", "memory") or (self.table.regression and figure != "right_task")
            if ours is not None:
                mean = (ours.mean, ours.standard_error, ours.n)
                names = (self.row.paper, str(self.row.method), figure)
                found.append(Comparison(*names, *mean, paper, error, lower, None, self.budget))
        return found

    @property
    def budget(self) -> float | None:
        return None if self.line is None or self.line.record is None else self.line.record.budget

    @property
    def remark(self) -> str:
        return "" if self.line is None else self.line.labels.get("variant", "")

    @property
    def short(self) -> list[str]:
        return [SHORT_NAMES.get(entry.figure, entry.figure) for entry in self.comparisons if entry.falls_short]

    @property
    def counts(self) -> bool:
        """Whether it was measured at the published length, so that it can be compared."""
        return bool(self.comparisons) and (self.budget is None or self.budget >= 1)

    @property
    def mark(self) -> str:
        if self.row.method is None:
            return "cited"
        if not self.comparisons:
            return "not run"
        if not self.counts:
            return "not comparable: shorter"
        words = f"**short**: {', '.join(self.short)}" if self.short else "within"
        return f"{words} ({self.remark})" if self.remark else words


def marked_rows(records: Mapping[str, Record]) -> Iterator[MarkedRow]:
    """All rows of all tables, each with the measurement that is closest to it."""
    lines = lines_of(records)
    for table in paper_tables().values():
        for row in table.rows:
            yield MarkedRow(table, row, _closest(table, row, lines) if row.method else None)


def _closest(table: PaperTable, row: PaperRow, lines: list[Line]) -> Line | None:
    """Of the measurements with published settings the one without remarks, and the longest."""
    wanted = {"benchmark": table.benchmark, "method": row.method, "network": row.network or table.network}
    found = [
        line
        for line in lines
        if all(line.labels.get(key) == value for key, value in wanted.items())
        and line.labels.get("recipe") == "published"
        and "other" not in line.labels
        and ("variant" in line.labels or not _settings(line) - set(table.settings) - LENGTH)
        and (not set(table.settings) - ASIDE or _settings(line) & set(table.settings))
        and any(figure_key(key, batch_wise=row.batch_wise) in line.figures for key in row.figures)
    ]
    best = sorted(found, key=_rank)
    return best[0] if best else None


def _rank(line: Line) -> tuple[bool, float]:
    budget = line.record.budget if line.record is not None else None
    return "variant" in line.labels, -(1.0 if budget is None else min(budget, 1.0))


def _settings(line: Line) -> set[str]:
    """The settings in which a run differs from its recipe."""
    return set(re.findall(r"(?:^|,)([a-z_]+(?:\.[a-z_]+)*)=", line.labels.get("settings", "")))


def rows_of_the_paper(records: Mapping[str, Record]) -> str:
    """All rows, table by table, with how many are within the paper's spread."""
    rows = list(marked_rows(records))
    text = [
        f"{_counts(rows)} in every figure.",
        "",
        "| table | rows that can be run | at the published length | within the paper's spread |",
        "|---|---|---|---|",
    ]
    by_table: dict[str, list[MarkedRow]] = {}
    for row in rows:
        by_table.setdefault(row.table.name, []).append(row)
    for name, own in by_table.items():
        counted = [row for row in own if row.counts]
        numbers = (sum(row.row.method is not None for row in own), len(counted), sum(not row.short for row in counted))
        text.append(f"| `{name}`: {own[0].table.title} | " + " | ".join(map(str, numbers)) + " |")
    for name, own in by_table.items():
        text += ["", f"## {own[0].table.title}", "", f"`metareplay reproduce {name}`", "", *_rows(own)]
    return "\n".join(text)


def _rows(rows: list[MarkedRow]) -> list[str]:
    """One table of the paper."""
    heading = "| row | | TGiven-Final: ours | paper | task inferred: ours | paper | seeds |"
    return [heading, "|" + "---|" * 7, *("| " + " | ".join(_cells(row)) + " |" for row in rows)]


def _counts(rows: list[MarkedRow]) -> str:
    counted = [row for row in rows if row.counts]
    own, within = sum(row.row.method is not None for row in rows), sum(not row.short for row in counted)
    return (
        f"Of {own} rows that can be run here, {len(counted)} were measured at the published length, "
        f"and {within} of these are within the paper's spread"
    )


def rows_that_fall_short(records: Mapping[str, Record]) -> str:
    """The figures that are worse than the paper's, one line each."""
    text = ["| table | row | figure | ours | paper | seeds | |", "|---|---|---|---|---|---|---|"]
    last: tuple[str, str] = ("", "")
    for row in marked_rows(records):
        for entry in row.comparisons if row.counts else ():
            if entry.falls_short:
                name = (f"`{row.table.name}`", row.row.paper)
                told = ["", ""] if name == last else ["" if name[0] == last[0] else name[0], name[1]]
                about = "" if name == last else row.remark
                last = name
                figures = [FIGURES[entry.figure][0], *_pair(row, entry.figure), str(entry.seeds), about]
                text.append("| " + " | ".join([*told, *figures]) + " |")
    return "\n".join(text)


def _cells(row: MarkedRow) -> list[str]:
    keys = list(row.row.figures)
    inferred = next((key for key in ("ent", "softmax", "task-net", "tinfer_final", "ku") if key in keys), None)
    first = "tgiven_final" if "tgiven_final" in keys else next((key for key in keys if key != inferred), None)
    plain = row.row.method is None or row.row.method == row.row.paper.lower()
    named = row.row.paper.replace("*", r"\*") + ("" if plain else f" (`{row.row.method}`)")
    seeds = "" if row.line is None else str(len(row.line.seeds) or "")
    length = "" if row.line is None or row.counts else f" ({100 * (row.budget or 0):.3g} % of the length)"
    return [named, row.mark, *_pair(row, first), *_pair(row, inferred), seeds + length]


def _pair(row: MarkedRow, figure: str | None) -> list[str]:
    """Ours and the paper's, as ``metareplay reproduce`` shows them."""
    if figure is None:
        return ["", ""]
    kind: Kind = FIGURES[figure][1]
    kind = "mse" if row.table.regression and figure != "right_task" else kind
    mine = next((entry for entry in row.comparisons if entry.figure == figure), None)
    ours = "" if mine is None else show(Estimate(mine.ours or 0.0, mine.error, mine.seeds), kind)
    return [ours, show(Estimate(*row.row.figures[figure], 1), kind)]
