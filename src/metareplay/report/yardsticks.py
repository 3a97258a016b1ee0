"""What a run's figures are measured against: guessing, and two simple models."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metareplay.experiments.results import Chance, Reference, References, Results
from metareplay.report import html
from metareplay.report.base import (
    MSE,
    TASK_GIVEN,
    Estimate,
    Number,
    estimate,
    explained,
    mean_by_task,
    root,
    show,
)
from metareplay.report.criteria import headline_criterion, headline_number, needs_no_task
from metareplay.report.runs import Group

JOINT, LAST = "joint", "last_task"


class Yardstick(NamedTuple):
    """What something simple reaches, in percent or as a squared error, task unknown or known, and by task."""

    label: str
    model: str
    data: str
    short: str
    remark: str
    inferred: Number
    known: Number
    by_task: NDArray[np.float64] | None


def yardsticks(runs: Sequence[Results]) -> list[Yardstick]:
    """The joint model, the last task's model, and guessing; only those that some run has."""
    models = [
        _model(runs, JOINT, "of all tasks at once", "All at once"),
        _model(runs, LAST, "of the last task", "Last task"),
    ]
    return [stick for stick in (*models, _guessing(runs)) if stick is not None]


def _reference(results: Results, which: str) -> Reference | None:
    return getattr(results.references or References(), which)


def _model(runs: Sequence[Results], which: str, data: str, short: str) -> Yardstick | None:
    found = [reference for run in runs if (reference := _reference(run, which)) is not None]
    if not found:
        return None
    names = " or ".join(dict.fromkeys(reference.model for reference in found))
    first = found[0]
    rows = f"{first.rows:,} rows" if first.rows == first.of_rows else f"{first.rows:,} of {first.of_rows:,} rows"

    def inferred(results: Results) -> float | None:
        reference = _reference(results, which)
        return None if reference is None else reference.score

    def known(results: Results) -> float | None:
        reference = _reference(results, which)
        if reference is None:
            return None
        return reference.score if results.regression else reference.known  # it is never told the task

    by_task = mean_by_task([reference.by_task for reference in found], runs[0].num_tasks)
    model = f"{names[0].upper()}{names[1:]}"
    return Yardstick(f"{model} {data}", model, data, short, rows, inferred, known, by_task)


def _guessing(runs: Sequence[Results]) -> Yardstick | None:
    if all(run.chance is None for run in runs):
        return None
    by_task = mean_by_task([run.chance.by_task for run in runs if run.chance], runs[0].num_tasks)
    label = "Always the mean target" if runs[0].regression else "Guessing"
    return Yardstick(
        label,
        "",
        "",
        "Guessing",
        "" if runs[0].regression else "the most frequent label",
        lambda results: (results.chance or Chance()).inferred,
        lambda results: (results.chance or Chance()).known,
        by_task,
    )


def beside_simple_models(group: Group) -> str:
    """Bars: this method, the simple models and guessing, with the task inferred and with the task known."""
    runs, sticks = group.results, yardsticks(group.results)
    if not sticks:
        return ""
    name = headline_criterion(runs)
    panels = []
    if name is not None or all(map(needs_no_task, runs)):
        rows = [(group.label, "", headline_number(name), True)]
        rows += [(stick.label, stick.remark, stick.inferred, False) for stick in sticks]
        panels.append(_panel(group, "Task unknown", rows))
    given = MSE[1] if group.regression else TASK_GIVEN[1]
    rows = [(group.label, "", given.number, True)]
    rows += [(stick.label, "", stick.known, False) for stick in sticks]
    own = "are not told the task" if group.regression else "choose among the task's labels"
    panels.append(_panel(group, "Task known", rows, remark=f"; simple models {own}"))
    columns = f'<div class="halves">{"".join(panels)}</div>' if len(panels) > 1 else "".join(panels)
    return f"<h3>Compared with simple models</h3>{columns}"


def _panel(group: Group, title: str, rows: Sequence[tuple[str, str, Number, bool]], remark: str = "") -> str:
    bars = []
    for label, small, number, own in rows:
        value = estimate(group.results, number)
        if value is None:
            continue
        if group.regression:
            shares, roots = estimate(group.results, explained(number)), estimate(group.results, root(number))
            length = 100.0 * max(shares.mean, 0.0) if shares else 0.0
            text = f"{show(shares, 'share')}"
            small = f"RMSE {show(roots, 'mse')}" + (f", {small}" if small else "")
        else:
            length, text = value.mean, f"{value.mean:.1f} %"
        bars.append(html.Bar(label, length if math.isfinite(length) else 0.0, text, small, own))
    unit = "R², the share of the targets' variance that is explained"
    unit = f"{unit}{remark}" if group.regression else f"Accuracy, mean over tasks{remark}"
    return html.bars(title, unit, bars) if len(bars) > 1 else ""


def reference_rows(runs: Sequence[Results]) -> list[tuple[str, Estimate | None, Estimate | None]]:
    """Label, figure with the task unknown, figure with the task known; squared errors as roots."""
    regression = runs[0].regression
    return [
        (
            stick.label,
            estimate(runs, root(stick.inferred) if regression else stick.inferred),
            estimate(runs, root(stick.known) if regression else stick.known),
        )
        for stick in yardsticks(runs)
    ]
