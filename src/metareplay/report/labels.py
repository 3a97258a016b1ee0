"""The part of the page about labels: which one is taken for which, and how well each is recognised."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metareplay.experiments.results import Results
from metareplay.report import html
from metareplay.report.base import MISSING
from metareplay.report.pictures import label_picture
from metareplay.report.runs import Group

MOST_OPEN = 20
"""A longer table of labels is folded away."""

Counts = NDArray[np.int64]


class LabelRow(NamedTuple):
    """How well one label is recognised: percentages, NaN where there is nothing to divide by."""

    name: str
    precision: float
    recall: float
    inputs: int
    confused_with: str
    """The label that it is most often taken for, with the share of its inputs; empty if it is never mistaken."""


def label_counts(runs: Sequence[Results]) -> tuple[list[str], Counts] | None:
    """Labels and their confusion (true, answer), all seeds added up; None if no run has one."""
    known = [run.labels for run in runs if run.labels is not None and run.labels.confusion]
    if not known or any(figures.labels != known[0].labels for figures in known):
        return None
    # (seeds, C, C) -> (C, C)
    return known[0].labels, np.sum([np.array(figures.confusion) for figures in known], axis=0)


def label_rows(names: Sequence[str], counts: Counts) -> list[LabelRow]:
    """One row per label."""
    rows = []
    for label, name in enumerate(names):
        right, own, given = int(counts[label, label]), int(counts[label].sum()), int(counts[:, label].sum())
        others = counts[label].copy()
        others[label] = 0
        worst = int(others.argmax())
        mistaken = f"{names[worst]} ({100 * others[worst] / own:.0f} %)" if others[worst] else ""
        rows.append(LabelRow(name, _percent(right, given), _percent(right, own), own, mistaken))
    return rows


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else math.nan


def which_label(group: Group, prefix: str) -> str:
    """Confusion of labels next to a table with a row per label."""
    found = label_counts(group.results)
    if found is None:
        return ""
    picture = label_picture(group, prefix)
    table = _table(label_rows(*found))
    if len(found[0]) > MOST_OPEN:
        folded = html.details(f"Each of the {len(found[0])} labels", html.inside(table))
        return f"<h3>Which label is it?</h3>{picture}{_note(group)}{folded}"
    content = f'<div class="tables even">{picture}{table}</div>' if picture else table
    return f"<h3>Which label is it?</h3>{content}{_note(group)}"


def _table(rows: Sequence[LabelRow]) -> str:
    cells = [
        [
            html.Cell(row.name, str(number)),
            html.number_cell(row.recall, "percent"),
            html.number_cell(row.precision, "percent"),
            html.Cell(f"{row.inputs:,}", str(row.inputs)),
            html.text_cell(row.confused_with) if row.confused_with else html.Cell(MISSING),
        ]
        for number, row in enumerate(rows)
    ]
    headers = ("Label", "Recall", "Precision", "Inputs", "Taken for")
    return html.table(headers, cells, sortable=True, css="dense names")


def _note(group: Group) -> str:
    figures = next(run.labels for run in group.results if run.labels is not None)
    how = "The task is given." if figures.task_known else "The task is not given, and inferred by the default."
    words = "Recall: % of a label's inputs that get it; precision: % of the answers with it that are right; "
    words += "taken for: the label that its inputs most often get instead. "
    words += how + (" All seeds together." if len(group.runs) > 1 else "")
    return f'<p class="note">{escape(words)}</p>'
