"""The parts of the page that describe one method: headline figures, tables, and how to repeat it."""

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

import numpy as np

from metareplay.experiments.results import FinalFigures, ParameterCounts, Results, SquaredErrors
from metareplay.report import html
from metareplay.report.base import (
    CALIBRATION,
    MSE,
    TASK_GIVEN,
    Estimate,
    Kind,
    Number,
    batch_wise,
    estimate,
    fine_tuned_row,
    mean_and_error,
    mean_matrix,
    right_task,
    show,
    show_bytes,
    show_duration,
    task_names,
    training_seconds,
)
from metareplay.report.criteria import TITLES, headline_criterion, headline_measure
from metareplay.report.reliance import aurocs, bytes_per_task, false_rejections, task_calibration_error
from metareplay.report.runs import Group

SCENARIOS = {
    "task": "each task has its own classes and is known at test time",
    "domain": "all tasks share their outputs, the inputs change",
    "class": "each task has its own classes, and the task has to be inferred to name the class",
}

MOST_ROWS = 12
"""A longer table of tasks is collapsed."""


def headline(group: Group) -> str:
    """The cards at the top: results, what they can be relied on for, and costs."""
    runs, regression = group.results, group.regression
    name = headline_criterion(runs)
    given = MSE[1:2] if regression else TASK_GIVEN[1:3]
    items = [_card(estimate(runs, m.number), m.label, m.kind, m.meaning) for m in given]
    if name is not None:
        items = [*_inferred_cards(group, name), *items]
    return html.cards(item for item in (*items, *_reliance_cards(runs), *_costs(group)) if item is not None)


def _inferred_cards(group: Group, name: str) -> list[html.Card | None]:
    """Figures with the task inferred by the headline's criterion."""
    runs, regression = group.results, group.regression
    measure = headline_measure(name, regression=regression)
    what = "Squared error" if regression else "Accuracy"
    how = f"{what} after the last task, task unknown: {TITLES.get(name, name)}."
    cards = [_card(estimate(runs, measure.number), measure.label, measure.kind, how)]
    if regression:
        how = f"Share of inputs assigned to the right task, by {name}."
        cards.append(_card(estimate(runs, right_task(name)), "Right task", "percent", how))
    elif group.batch_wise:
        how = f"The same when {group.first.batch_wise_size or 'several'} inputs of one task are judged together."
        cards.append(_card(estimate(runs, batch_wise(name)), f"Batch-wise ({name})", "percent", how))
    return cards


def _reliance_cards(runs: Sequence[Results]) -> Iterator[html.Card | None]:
    """Unknown inputs and probabilities of tasks."""
    by_kind, rejected = aurocs(runs), estimate(runs, false_rejections)
    if by_kind:
        kind, lowest = min(by_kind.items(), key=lambda item: item[1].mean)
        meaning = f"Lowest of {len(by_kind)} kinds of strangers ({kind}) against test inputs"
        meaning += "." if rejected is None else f", of which {show(rejected, 'percent')} % are falsely rejected."
        yield html.Card("Unknown inputs", f"{lowest.mean:.3f}", "AUROC", meaning)
    meaning = "Calibration error: mean gap between an inferred task's probability and how often it is right."
    yield _card(estimate(runs, task_calibration_error), "Task probabilities", "percent", meaning)


def results_table(group: Group) -> str:
    """Figures with the task known, with what they mean, beside those of each task."""
    runs = group.results
    rows = [
        [html.text_cell(m.label, m.meaning), html.estimate_cell(value, m.kind)]
        for m in (MSE[:2] if group.regression else (*TASK_GIVEN, CALIBRATION))
        if (value := estimate(runs, m.number)) is not None
    ]
    known = html.table(("Error" if group.regression else "All tasks", "MSE" if group.regression else "%"), rows)
    tasks = _tasks_table(group)
    if tasks and group.first.num_tasks <= MOST_ROWS:
        content = f'<div class="tables">{known}{tasks}</div>'
    else:
        content = f'<div class="spaced">{known}</div>{_folded(group, tasks)}'
    return f"<h3>Task known</h3>{content}{_before_fine_tuning(group)}"


def _folded(group: Group, table: str) -> str:
    title = f"Each of the {group.first.num_tasks} tasks"
    return html.details(title, table.replace('class="panel scroll"', 'class="scroll"')) if table else ""


def _before_fine_tuning(group: Group) -> str:
    """What fine-tuning on coresets started from, for methods that do so."""
    name = headline_criterion(group.results)
    figures: list[tuple[str, Kind, Callable[[FinalFigures], float | None]]] = [
        ("TGiven-Final", "percent", lambda f: f.tgiven_final)
    ]
    if group.regression:
        figures = [
            ("TGiven-Final", "mse", lambda f: (f.mse or SquaredErrors()).tgiven_final),
            ("TInfer-Final", "mse", lambda f: (f.mse or SquaredErrors()).tinfer_final),
        ]
    elif name is not None:
        figures.append((f"TInfer-Final ({name})", "percent", lambda f: (f.tinfer_final or {}).get(name)))
    values = [(label, kind, estimate(group.results, _before(figure))) for label, kind, figure in figures]
    shown = ", ".join(f"{escape(label)} {show(value, kind)}" for label, kind, value in values if value is not None)
    return (
        f'<p class="note">All figures are those after fine-tuning on coresets. Before it: {shown}.</p>' if shown else ""
    )


def _before(figure: Callable[[FinalFigures], float | None]) -> Number:
    """A figure as it was before fine-tuning."""
    return lambda results: None if results.before_fine_tuning is None else figure(results.before_fine_tuning)


def _tasks_table(group: Group) -> str:
    """Each task right after it was learned and at the end."""
    names = task_names(group.first)
    matrix = mean_matrix([run.tgiven_matrix for run in group.results], len(names))
    if matrix is None:
        return ""
    tuned = fine_tuned_row(group.results)
    last = matrix[-1] if tuned is None else tuned
    kind: Kind = "mse" if group.regression else "percent"
    unit = "MSE" if group.regression else "%"
    rows = [
        [html.Cell(name, str(task)), *(html.number_cell(value, kind) for value in (during, final, final - during))]
        for task, (name, during, final) in enumerate(zip(names, np.diagonal(matrix), last, strict=True))
    ]
    end = "At the end" if tuned is None else "After fine-tuning"
    headers = ("Task", f"After learning it, {unit}", f"{end}, {unit}", "Change")
    return html.table(headers, rows, sortable=True)


def how_to_repeat(group: Group) -> str:
    """The command that repeats the runs, their configuration and the environment they ran in."""
    run = group.runs[0]
    command = ["metareplay", "run", "--config", str(run.folder / "config.yaml")]
    seeds = [run.results.seed for run in group.runs]
    if len(seeds) == 1:
        commands = [[*command, "--out", "repeated"]]
    elif seeds == list(range(seeds[0], seeds[0] + len(seeds))):  # --seeds counts on from the seed of the configuration
        commands = [[*command, "--seeds", str(len(seeds)), "--out", "repeated"]]
    else:
        commands = [[*command, "--seed", str(seed), "--out", f"repeated/seed-{seed}"] for seed in seeds]
    first = group.first
    environment = first.environment.model_dump(exclude_none=True).items() if first.environment else ()
    seconds = [
        (f"{key}, seconds", value)
        for key, value in (first.seconds.model_dump(exclude_none=True).items() if first.seconds else ())
    ]
    rows = [[html.text_cell(str(key)), html.text_cell(_plain(value))] for key, value in (*environment, *seconds)]
    others = "" if len(seeds) == 1 else "<p class='note'>Of the first seed; the others differ only in the seed.</p>"
    config = html.code(run.config_text) if run.config_text else "<p class='note'>The folder holds no config.yaml.</p>"
    return (
        "<h3>Repeat it</h3>"
        + html.code("\n".join(shlex.join(words) for words in commands), css="panel")
        + html.details("Configuration (config.yaml)", others + config)
        + html.details(
            "Environment", html.table(("", ""), rows, css="words").replace('class="panel scroll"', 'class="scroll"')
        )
    )


def description(group: Group) -> str:
    """One sentence about a method's runs, as markup."""
    first = group.first
    seeds = f"seed {first.seed}" if len(group.runs) == 1 else f"{len(group.runs)} seeds, mean ± standard error"
    scenario = SCENARIOS.get(str(first.scenario), "")
    remark = f" ({first.scenario}-incremental: {scenario})" if scenario and not group.regression else ""
    return escape(f"{first.num_tasks} tasks learned one after another{remark}; network {first.network}; {seeds}.")


def _costs(group: Group) -> Iterator[html.Card]:
    counts = group.first.parameters or ParameterCounts()
    trained, whole = counts.trained, counts.posterior or counts.main_network
    if trained and whole:
        whose = "the posterior of a single task" if counts.posterior else "the main network"
        meaning = f"{trained:,.0f} numbers are trained for all tasks; {whose} has {whole:,.0f}."
        size = estimate(group.results, bytes_per_task)
        meaning += "" if size is None else f" Statistics: {show_bytes(size.mean)} per task."
        yield html.Card("Memory", f"{trained / whole:.2f}×", "", meaning)
    seconds = estimate(group.results, training_seconds)
    if seconds is not None:
        yield html.Card(
            "Training time",
            show_duration(seconds.mean),
            "",
            "All tasks, on the machine described at the end of the page.",
        )


def _card(value: Estimate | None, label: str, kind: Kind, meaning: str) -> html.Card | None:
    if value is None:
        return None
    mean, error = mean_and_error(value, kind)
    return html.Card(
        label, mean, f"{f'± {error}' if error else ''} {'%' if kind == 'percent' else ''}".strip(), meaning
    )


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
