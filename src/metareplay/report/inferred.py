"""The parts of the page about inferred tasks: which task it is, and whether it is any of them."""

import math
from html import escape

from metareplay.report import html
from metareplay.report.base import (
    MISSING,
    Kind,
    Number,
    batch_wise,
    estimate,
    explained,
    inferred_error,
    right_label,
    right_task,
    root,
    task_names,
    tinfer,
)
from metareplay.report.criteria import REMARKS, TITLES, criteria_of, grouped, stated_default
from metareplay.report.pictures import confusion_pictures, strangeness_picture
from metareplay.report.reliance import Column, columns_by_task
from metareplay.report.runs import Group
from metareplay.report.sections import MOST_ROWS

KINDS: dict[str, Kind] = {"RMSE": "mse", "R²": "share"}
"""Formats of columns that are not percentages."""


def which_task(group: Group, prefix: str) -> str:
    """The default's confusion of tasks next to the figures by all criteria; confusions by the others are folded
    away."""
    criteria = criteria_of(group.results)
    first, *others = [*confusion_pictures(group, prefix), ""]
    if not criteria and not first:
        return ""
    meanings = "".join(f"<dt>{escape(name)}</dt><dd>{escape(TITLES[name])}</dd>" for name in criteria if name in TITLES)
    folded = html.details("How each criterion chooses the task", f"<dl>{meanings}</dl>") if meanings else ""
    if criteria and first:
        content = f'<div class="tables"><div>{first}{folded}</div>{_criteria_table(group, criteria)}</div>'
    else:
        content = f'<div class="spaced">{first or _criteria_table(group, criteria)}</div>{folded}'
    if pictures := "".join(others):
        title = f"Tasks inferred by the other criteria ({len(others) - 1})"
        content += html.details(title, f'<div class="figures">{pictures}</div>')
    note = _guessing(group) if criteria else ""
    return f"<h3>Which task is it?</h3>{content}{note}"


def _guessing(group: Group) -> str:
    """What the figures are to be compared with, and what the paper calls them."""
    words = [f"Right task: guessing reaches {100 / group.first.num_tasks:.0f} %."]
    if _shared(group):
        mixed = "Right label: as predict answers, by the default the mean of what all probable tasks say."
        words = [mixed, "TInfer-Final, the paper's: the answer of the one task that is inferred.", *words]
    elif not group.regression:
        words.insert(0, "Each input: accuracy with the task inferred from that input alone, the paper's TInfer-Final.")
    return f'<p class="note">{escape(" ".join(words))}</p>'


def known_or_unknown(group: Group, prefix: str) -> str:
    """Test inputs against unknown inputs, and how far each task can be relied on."""
    picture, table = strangeness_picture(group, prefix), _reliance_table(group)
    title = "Is it any of them?" if picture else "How far inferred tasks can be relied on"
    return f"<h3>{title}</h3>{picture}{table}" if picture or table else ""


def _criteria_table(group: Group, criteria: list[str]) -> str:
    """The figures of every criterion: the default first and marked, the paper's, the others."""
    runs, default = group.results, stated_default(group.results)
    size = group.first.batch_wise_size
    if group.regression:
        columns = [(_root_error, "RMSE"), (_explained_error, "R²"), (right_task, "Right task, %")]
    else:
        batches = [(batch_wise, f"Batches of {size}" if size else "Batches")] if group.batch_wise else []
        each = [(right_label, "Right label"), (tinfer, "TInfer-Final")] if _shared(group) else [(tinfer, "Each input")]
        columns = [*each, *batches, (right_task, "Right task")]
    columns = [
        (figure, label)
        for figure, label in columns
        if any(estimate(runs, figure(name)) is not None for name in criteria)
    ]
    groups = []
    for title, names in grouped(criteria, default):
        rows = [
            [
                html.text_cell(name, badge="default" if name == default else REMARKS.get(name, "")),
                *(
                    html.estimate_cell(estimate(runs, figure(name)), KINDS.get(label, "percent"))
                    for figure, label in columns
                ),
            ]
            for name in names
        ]
        groups.append((title, rows))
    if len(groups) == 1 or default is not None:
        groups[0] = ("", groups[0][1])  # the default has its mark, a single group needs no title
    head = "Task inferred by" if group.regression else "Task inferred by, %"  # TInfer-Final of the paper
    return html.grouped_table((head, *(label for _, label in columns)), groups, sortable=True)


def _shared(group: Group) -> bool:
    """Whether tasks share labels, so that a label may be right whichever task it came from."""
    runs = group.results
    return any(estimate(runs, right_label(name)) is not None for name in criteria_of(runs))


def _root_error(criterion: str) -> Number:
    return root(inferred_error(criterion))


def _explained_error(criterion: str) -> Number:
    return explained(inferred_error(criterion))


def _reliance_table(group: Group) -> str:
    """What is known about each task: who is taken for unknown, how probabilities hold, what is stored, what moved."""
    columns = columns_by_task(group.results)
    if len(columns) < 2:  # the right task alone is the diagonal of the picture above
        return ""
    rows = [
        [html.Cell(name, str(task)), *(_cell(column, task) for column in columns)]
        for task, name in enumerate(task_names(group.first))
    ]
    table = html.table(("Task", *(column.heading for column in columns)), rows, sortable=True)
    meanings = "; ".join(f"<b>{escape(_short(column))}</b>: {escape(column.meaning)}" for column in columns)
    note = f'<p class="note">{meanings}.</p>'
    if len(rows) > MOST_ROWS:
        title = f"How far each of the {len(rows)} tasks can be relied on"
        return html.details(title, html.inside(table) + note)
    return table + note


def _short(column: Column) -> str:
    return column.heading.removesuffix(", %")


def _cell(column: Column, task: int) -> html.Cell:
    value = float(column.values[task])
    return html.Cell(column.show(value), repr(value)) if math.isfinite(value) else html.Cell(MISSING)
