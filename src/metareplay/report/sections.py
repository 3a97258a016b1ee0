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
    KEPT,
    MSE,
    RMSE,
    TASK_GIVEN,
    Estimate,
    Kind,
    Measure,
    Number,
    batch_wise,
    estimate,
    explained,
    fine_tuned_row,
    mean_and_error,
    mean_matrix,
    right_label,
    right_task,
    show,
    show_bytes,
    show_duration,
    task_names,
    training_seconds,
)
from metareplay.report.continual import continual_section
from metareplay.report.criteria import TITLES, headline_criterion, headline_measure, headline_number, needs_no_task
from metareplay.report.reliance import (
    bytes_per_task,
    clear_aurocs,
    false_rejections,
    interval_coverage,
    label_calibration_error,
    task_calibration_error,
)
from metareplay.report.runs import Group
from metareplay.report.yardsticks import yardsticks

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
    given = RMSE[1:2] if regression else TASK_GIVEN[1:3] if group.first.num_tasks > 1 else TASK_GIVEN[1:2]
    same = " The answer is the same without the task." if all(map(needs_no_task, runs)) else ""
    items = [_measured(runs, m, m.meaning + (same if m is given[0] else "")) for m in given]
    if regression:
        items.append(_explained(runs, name))
    if name is not None:
        items = [*_inferred_cards(group, name), *items]
    return html.cards(item for item in (*items, *_reliance_cards(runs), *_costs(group)) if item is not None)


def _measured(runs: Sequence[Results], measure: Measure, meaning: str = "") -> html.Card | None:
    value = estimate(runs, measure.number)
    return _card(value, measure.label, measure.kind, meaning or measure.meaning, measure.gloss)


def _explained(runs: Sequence[Results], name: str | None) -> html.Card | None:
    """R² with the task known, and inferred."""
    inferred = estimate(runs, explained(headline_number(name))) if name else None
    also = "" if inferred is None else f" With the task inferred: {show(inferred, 'share')}."
    meaning = f"Share of the targets' variance, over all tasks, that is explained with the task known.{also}"
    return _card(estimate(runs, explained(MSE[1].number)), "R²", "share", meaning)


def _inferred_cards(group: Group, name: str) -> list[html.Card | None]:
    """Figures with the task inferred by the headline's criterion."""
    runs, regression = group.results, group.regression
    measure = headline_measure(name, regression=regression)
    what = "Root mean squared error" if regression else "Accuracy"
    chosen = TITLES.get(name, name)
    if regression and any(run.answers is not None and run.answers.rmse is not None for run in runs):
        chosen = "the mean of what all probable tasks predict"
    how = f"{what} after the last task, task unknown: {chosen}."
    if estimate(runs, right_label(name)) is not None:
        how = f"Right labels after the last task, whichever task they came from; task unknown, by {name}."
        measure = measure._replace(label="Right label", gloss=f"task inferred, {name}")
    cards = [_measured(runs, measure, how)]
    if regression or group.first.scenario == "domain":
        how = f"Share of inputs assigned to the right task, by {name}."
        if group.first.num_tasks > 1:
            how += f" Guessing reaches {100 / group.first.num_tasks:.0f} %."
        cards.append(_card(estimate(runs, right_task(name)), "Right task", "percent", how))
    elif group.batch_wise:
        size = group.first.batch_wise_size
        how = f"The same when {size or 'several'} inputs of one task are judged together."
        label = f"Task inferred, {size} at once" if size else "Task inferred, in batches"
        cards.append(_card(estimate(runs, batch_wise(name)), label, "percent", how, f"batch-wise, {name}"))
    return cards


def _reliance_cards(runs: Sequence[Results]) -> Iterator[html.Card | None]:
    """Unknown inputs and probabilities of tasks."""
    by_kind, rejected = clear_aurocs(runs), estimate(runs, false_rejections)
    if by_kind:
        kind, lowest = min(by_kind.items(), key=lambda item: item[1].mean)
        which = f"Lowest of {len(by_kind)} kinds of" if len(by_kind) > 1 else "One kind of"
        meaning = f"{which} unknown inputs ({kind}) against test inputs"
        meaning += "." if rejected is None else f", of which {show(rejected, 'percent')} % are falsely rejected."
        yield html.Card("Unknown inputs", f"{lowest.mean:.3f}", "AUROC", meaning)
    meaning = "Targets within their 95 % prediction intervals."
    yield _card(estimate(runs, interval_coverage), "Coverage", "percent", meaning)
    meaning = "Calibration error: mean gap between a label's probability and how often it is right, task inferred."
    yield _card(estimate(runs, label_calibration_error), "Label probabilities", "percent", meaning, "ECE")
    meaning = "Calibration error: mean gap between an inferred task's probability and how often it is right."
    yield _card(estimate(runs, task_calibration_error), "Task probabilities", "percent", meaning)


def results_table(group: Group) -> str:
    """Figures with the task known, with what they mean, and those of each task."""
    runs = group.results
    rows = [
        [html.text_cell(m.label, m.meaning, gloss=m.gloss), html.estimate_cell(value, m.kind)]
        for m in (RMSE[:2] if group.regression else (*TASK_GIVEN, CALIBRATION))
        if (value := estimate(runs, m.number)) is not None
    ]
    known = html.table(("Error" if group.regression else "All tasks", "RMSE" if group.regression else "%"), rows)
    tasks = _tasks_table(group)
    if tasks and group.first.num_tasks <= MOST_ROWS:
        content = f'<div class="spaced">{tasks}<div class="narrow">{known}</div></div>'
    else:
        content = f'<div class="spaced">{known}</div>{_folded(group, tasks)}'
    return f"<h3>Each task, if it is known</h3>{content}{continual_section(group)}{_before_fine_tuning(group)}"


def _folded(group: Group, table: str) -> str:
    title = f"Each of the {group.first.num_tasks} tasks"
    return html.details(title, html.inside(table)) if table else ""


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
    """Each task right after it was learned and at the end, next to simple models that are not told the task."""
    names = task_names(group.first)
    matrix = mean_matrix([run.tgiven_matrix for run in group.results], len(names))
    if matrix is None:
        return ""
    tuned = fine_tuned_row(group.results)
    last = matrix[-1] if tuned is None else tuned
    first = np.diagonal(matrix)
    kind: Kind = "mse" if group.regression else "percent"
    unit = "RMSE" if group.regression else "%"
    sticks = [stick for stick in yardsticks(group.results) if stick.by_task is not None]
    columns = [first, last, *(stick.by_task for stick in sticks if stick.by_task is not None)]
    if group.regression:
        columns = [np.sqrt(column) for column in columns]
    columns.insert(2, columns[1] - columns[0])
    rows = [
        [html.Cell(name, str(task)), *(html.number_cell(column[task], kind) for column in columns)]
        for task, name in enumerate(names)
    ]
    end = "At the end" if tuned is None else "After fine-tuning"
    headers = ("Task", f"When learned, {unit}", f"{end}, {unit}", "Change", *(stick.short for stick in sticks))
    models = [f"{stick.short}: {_lowered(stick.label)}" for stick in sticks if stick.label != stick.short]
    words = f"{'; '.join(models)}. Simple models are not told the task." if models else ""
    note = f'<p class="note">{escape(words)}</p>' if words else ""
    return html.table(headers, rows, sortable=True) + note


def _lowered(words: str) -> str:
    return f"{words[0].lower()}{words[1:]}"


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
        for key, value in (first.seconds.model_dump(exclude={"by_task"}).items() if first.seconds else ())
        if value is not None
    ]
    rows = [[html.text_cell(str(key)), html.text_cell(_plain(value))] for key, value in (*environment, *seconds)]
    others = "" if len(seeds) == 1 else "<p class='note'>Of the first seed; the others differ only in the seed.</p>"
    config = html.code(run.config_text) if run.config_text else "<p class='note'>The folder holds no config.yaml.</p>"
    return (
        "<h3>Repeat it</h3>"
        + html.code("\n".join(shlex.join(words) for words in commands), css="panel")
        + html.details("Configuration (config.yaml)", others + config)
        + html.details("Environment", html.inside(html.table(("", ""), rows, css="words")))
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
    size = estimate(group.results, bytes_per_task)
    stored = "" if size is None else f"Statistics: {show_bytes(size.mean)} per task."
    if (
        trained and whole and trained / whole <= group.first.num_tasks and not group.keeps_rows
    ):  # else there is nothing that it saves
        whose = "the posterior of a single task" if counts.posterior else "the main network"
        kept = f", and {counts.kept:,} kept besides ({KEPT})" if counts.kept else ""
        meaning = f"{trained:,.0f} numbers are trained for all tasks{kept}; {whose} has {whole:,.0f}. {stored}".strip()
        yield html.Card("Memory", f"{(trained + (counts.kept or 0)) / whole:.2f}×", "", meaning)
    elif size is not None:
        meaning = "Statistics stored about a task, to infer it and to recognise unknown inputs"
        meaning += ". Rows of old tasks are kept besides." if group.keeps_rows else "; never examples."
        yield html.Card("Stored per task", show_bytes(size.mean), "", meaning)
    seconds = estimate(group.results, training_seconds)
    if seconds is not None:
        yield html.Card(
            "Training time",
            show_duration(seconds.mean),
            "",
            "All tasks, on the machine described at the end of the page.",
        )


def _card(value: Estimate | None, label: str, kind: Kind, meaning: str, gloss: str = "") -> html.Card | None:
    if value is None:
        return None
    mean, error = mean_and_error(value, kind)
    unit = f"{f'± {error}' if error else ''} {'%' if kind == 'percent' else ''}".strip()
    return html.Card(label, mean, unit, meaning, gloss)


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
