"""Figures of continual learning besides accuracy: measures for tables, and a table by task."""

from collections.abc import Callable, Sequence
from html import escape

import numpy as np

from metareplay.experiments.continual_record import ContinualFigures
from metareplay.experiments.results import Results
from metareplay.report import html
from metareplay.report.base import (
    Measure,
    Number,
    estimate,
    mean_by_task,
    show,
    show_bytes,
    show_duration,
    task_names,
)
from metareplay.report.runs import Group

TITLE = "More figures of continual learning"


def _of(figure: Callable[[ContinualFigures], float | None]) -> Number:
    return lambda results: None if results.continual is None else figure(results.continual)


CONTINUAL = (
    Measure(
        _of(lambda figures: figures.average_incremental),
        "Average incremental accuracy",
        "percent",
        "Mean over tasks of the accuracy on all tasks so far, task known.",
    ),
    Measure(
        _of(lambda figures: figures.average_incremental_inferred),
        "Average incremental accuracy, task inferred",
        "percent",
        "The same with the task inferred, on the test inputs that were tracked.",
    ),
    Measure(
        _of(lambda figures: figures.forgetting_inferred),
        "Forgetting, task inferred",
        "percent",
        "Accuracy lost since each task was learned, task inferred.",
        False,
    ),
    Measure(
        _of(lambda figures: figures.backward_transfer_inferred),
        "Backward transfer, task inferred",
        "percent",
        "Mean change of earlier tasks' accuracy, task inferred.",
    ),
    Measure(
        _of(lambda figures: figures.forward_transfer),
        "Forward transfer",
        "percent",
        "Accuracy on each later task before it is learned, above guessing.",
    ),
    Measure(
        _of(lambda figures: figures.intransigence),
        "Intransigence",
        "percent",
        "What a model trained on all tasks at once answers better, a task's classes given; below 0: worse.",
        False,
    ),
    Measure(
        _of(lambda figures: figures.minimum_accuracy),
        "Minimum accuracy",
        "percent",
        "Lowest accuracy of each old task while later ones were learned, mean over old tasks.",
    ),
    Measure(
        _of(lambda figures: figures.stability_gap),
        "Stability gap",
        "percent",
        "How far old tasks fall during a task below what they had before it.",
        False,
    ),
)


def continual_line(runs: Sequence[Results]) -> str | None:
    """What was tracked while tasks were learned, for the terminal; None if nothing was, and for regression."""
    if runs[0].regression or all(run.continual is None or run.continual.test_inputs is None for run in runs):
        return None
    values = [(measure.label, estimate(runs, measure.number)) for measure in CONTINUAL]
    known = [f"{label.lower()} {show(value, 'percent')}" for label, value in values if value is not None]
    return f"{cadence(runs)}: {'; '.join(known)}" if known else None


def cadence(runs: Sequence[Results]) -> str:
    """On how many test inputs, and how often, tasks were tested while they were learned."""
    tracked = [run.continual for run in runs if run.continual is not None and run.continual.test_inputs is not None]
    inputs, every = tracked[0].test_inputs, tracked[0].test_every
    words = f"tracked on {inputs} test input{'' if inputs == 1 else 's'} of each task"
    if every is None:
        return words
    return f"{words}, old ones every {f'{every:,} steps' if every > 1 else 'step'} of a new one"


def continual_section(group: Group) -> str:
    """What the reader opens: figures of all tasks, and calibration, time and memory of each; empty without them."""
    values = [] if group.regression else [(m, estimate(group.results, m.number)) for m in CONTINUAL]
    rows = [
        [html.text_cell(measure.label, measure.meaning), html.estimate_cell(value, measure.kind)]
        for measure, value in values
        if value is not None
    ]
    whole = html.table(("All tasks", "%"), rows) if rows else ""
    content = f"{whole}{_tracked(group)}{_by_task(group)}"
    return html.details(TITLE, content) if content else ""


def continual_table(groups: Sequence[Group]) -> str:
    """All methods side by side; empty if no run has any of these figures."""
    groups = [group for group in groups if not group.regression]
    columns = [(measure, [estimate(group.results, measure.number) for group in groups]) for measure in CONTINUAL]
    columns = [(measure, values) for measure, values in columns if any(value is not None for value in values)]
    if not columns:
        return ""
    rows = [
        [html.text_cell(group.label), *(html.estimate_cell(values[i], measure.kind) for measure, values in columns)]
        for i, group in enumerate(groups)
    ]
    headers = ("Method", *(measure.label for measure, _ in columns))
    table = html.inside(html.table(headers, rows, sortable=True, css="dense"))
    meanings = " ".join(f"{measure.label}: {measure.meaning}" for measure, _ in columns)
    return html.details(TITLE, f'{table}<p class="note">Percentages. {escape(meanings)}</p>')


def _tracked(group: Group) -> str:
    """On which inputs, and against what."""
    known = next((run.continual for run in group.results if run.continual is not None), None)
    if known is None or group.regression:
        return ""
    words = [] if known.joint is None else [f"Intransigence is against: {known.joint}."]
    if known.test_inputs is not None:
        words.append(f"While tasks were learned: {cadence(group.results)}.")
    return f'<p class="note">{escape(" ".join(words))}</p>' if words else ""


def _by_task(group: Group) -> str:
    """Each task's calibration, time and what it adds to the stored model; empty if no run has it."""
    names = task_names(group.first)
    figures = [run.continual for run in group.results if run.continual is not None]
    columns: list[tuple[str, list[Sequence[float]], Callable[[float], str]]] = [
        ("Calibration error, %", [each.calibration_error_by_task for each in figures], lambda value: f"{value:.2f}"),
        ("NLL", [each.nll_by_task for each in figures], lambda value: f"{value:.3f}"),
        ("Time to learn", [run.seconds.by_task for run in group.results if run.seconds], show_duration),
        ("Stored", [np.diff(each.model_bytes, prepend=0).tolist() for each in figures], show_bytes),
    ]
    shown = [(label, mean_by_task(values, len(names)), word) for label, values, word in columns]
    known = [(label, values, word) for label, values, word in shown if values is not None]
    if not known:
        return ""
    rows = [
        [html.Cell(name, str(task)), *(html.Cell(word(values[task]), f"{values[task]:g}") for _, values, word in known)]
        for task, name in enumerate(names)
    ]
    table = html.table(("Task", *(label for label, _, _ in known)), rows, sortable=True)
    words = "Calibration and NLL (mean negative log-probability of the right class) with the task known, at the end. "
    words += "Stored: what the task added to the model's file; the first has what all share."
    return f'{table}<p class="note">{escape(words)}</p>'
