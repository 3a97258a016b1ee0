"""Tables for the terminal, and the summary of several seeds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from metareplay.errors import DataError
from metareplay.experiments.results import ParameterCounts, Results
from metareplay.report.base import (
    MSE,
    TASK_GIVEN,
    Kind,
    Measure,
    Number,
    batch_wise,
    estimate,
    estimate_of,
    inferred_error,
    right_label,
    right_task,
    show,
    tinfer,
)
from metareplay.report.criteria import (
    criteria_of,
    grouped,
    headline_criterion,
    headline_measure,
    inferred,
    stated_default,
)
from metareplay.report.reliance import reliance_line

_SAME = ("benchmark", "method", "network", "scenario", "problem", "num_tasks")
_NO_FIGURES = {"schema", "seed", "num_tasks", "batch_wise_size", "parameters", "environment"}
_PAPER_COLUMNS = ("ent", "conf", "agree", "ku")


def summarise(runs: Sequence[Results]) -> dict[str, Any]:
    """The content of summary.json: results.json with mean, standard error and number of seeds of each figure.

    A figure that is null in all seeds is null; the standard error is null for one seed.
    """
    first = _check_same(runs)
    contents = [run.content() for run in runs]
    summary: dict[str, Any] = {"schema": 1} | {key: contents[0][key] for key in _SAME}
    summary["seeds"] = sorted(run.seed for run in runs)
    for key in dict.fromkeys(key for content in contents for key in content):
        if key not in _NO_FIGURES and key not in summary:
            summary |= _figures(key, [content.get(key) for content in contents])
    summary["default_criterion"] = stated_default(runs)
    summary["parameters"] = None if first.parameters is None else first.parameters.model_dump()
    return summary


def run_table(results: Results, *, batches: bool = True) -> Table:
    """The figures of one run, for a terminal of 80 columns or more; ``batches``: also those for batches of inputs."""
    return _figures_table([results], f"{results.method} on {results.benchmark}, seed {results.seed}", batches)


def seeds_table(runs: Sequence[Results], *, batches: bool = True) -> Table:
    """The figures of several seeds of one method: mean ± standard error."""
    first = _check_same(runs)
    seeds = "1 seed" if len(runs) == 1 else f"{len(runs)} seeds, mean ± standard error"
    return _figures_table(runs, f"{first.method} on {first.benchmark}, {seeds}", batches)


def comparison_table(groups: Mapping[str, Sequence[Results]]) -> Table:
    """One row per method (the keys name them), over its seeds: the default criterion and the paper's columns.

    A method that has no figure by the default shows the one by its own, with its name.
    """
    every = [run for runs in groups.values() for run in runs]
    regression = bool(every) and all(run.regression for run in every)
    common = headline_criterion(every)
    figures = _columns(every, common, regression)
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    table.add_column("Method", overflow="fold", vertical="top")
    table.add_column("Seeds", justify="right")
    for figure in figures:
        table.add_column("\n".join(figure.label.replace("-", " ").split(" ", 1)), justify="right", no_wrap=True)
    for label, runs in groups.items():  # the standard error is below its mean, to fit seven columns into 80 characters
        values = [show(estimate(runs, figure.number), figure.kind).replace(" ± ", "\n±") for figure in figures]
        own = headline_criterion(runs)
        if common and own and estimate(runs, inferred(common, regression=regression)) is None:
            values[2] += f"\n{own}"
        table.add_row(label, str(len(runs)), *values)
    return table


def parameters_line(results: Results) -> str | None:
    """The number of trained parameters, relative to one task's posterior and to the main network."""
    counts = results.parameters or ParameterCounts()
    trained = counts.trained
    if trained is None:
        return None
    parts = [f"{trained:,.0f} parameters trained"]
    for count, words in ((counts.posterior, "the posterior of one task"), (counts.main_network, "the main network")):
        if count:
            parts.append(f"{trained / count:.2f} times {words} ({count:,.0f})")
    if counts.per_task is not None:
        parts.append(f"{counts.per_task:,.0f} more per task")
    return "; ".join(parts)


def _columns(runs: Sequence[Results], common: str | None, regression: bool) -> list[Measure]:
    """The columns of a comparison: with the task known, by the common criterion, by the paper's."""
    inferred_by = headline_measure(None, regression=regression)._replace(
        number=headline_measure(common, regression=regression).number,
        label=f"{'MSE ' if regression else ''}TInfer {common or ''}".strip(),
    )
    if regression:
        right = [] if common is None else [Measure(right_task(common), "Right task", "percent", "")]
        return [*MSE[:2], inferred_by, *right]
    names = [name for name in criteria_of(runs) if name in _PAPER_COLUMNS and name != common]
    return [*TASK_GIVEN[:2], inferred_by, *(Measure(tinfer(name), f"TInfer {name}", "percent", "") for name in names)]


def _figures_table(runs: Sequence[Results], title: str, batches: bool) -> Table:
    regression = runs[0].regression
    table = Table(
        title=title, box=box.SIMPLE_HEAD, header_style="bold", title_style="bold", caption_style="dim", pad_edge=False
    )
    table.caption_justify = "left"
    table.add_column("Figure", no_wrap=True)
    columns, criteria = _inferred_columns(runs[0], batches), criteria_of(runs)
    columns = [
        column
        for i, column in enumerate(columns)
        if i == 0 or any(estimate(runs, column[1](name)) is not None for name in criteria)
    ]
    for header, _, _ in columns:
        table.add_column(header, justify="right")
    for figure in MSE[:2] if regression else TASK_GIVEN:
        value = estimate(runs, figure.number)
        if value is not None or figure.label != "Backward transfer":
            table.add_row(figure.label, show(value, figure.kind))
    default = stated_default(runs)
    for _, names in grouped(criteria, default):
        table.add_section()
        for name in names:
            label = f"{'MSE ' if regression else ''}TInfer-Final {name}{_remark(name, default)}"
            cells = [show(estimate(runs, number(name)), kind) for _, number, kind in columns]
            table.add_row(label, *cells, style="bold" if name == default else None)
    table.caption = "\n".join(filter(None, (reliance_line(runs), parameters_line(runs[0]))))
    return table


def _inferred_columns(first: Results, batches: bool) -> list[tuple[str, Callable[[str], Number], Kind]]:
    """The columns of a run's table: heading, the figure of a criterion, and its format."""
    right: tuple[str, Callable[[str], Number], Kind] = ("Right task %", right_task, "percent")
    if first.regression:
        return [("Value", inferred_error, "mse"), right]
    size = first.batch_wise_size
    label: tuple[str, Callable[[str], Number], Kind] = ("Right label %", right_label, "percent")
    if not batches:
        return [("Each input %", tinfer, "percent"), label, right]
    return [
        ("Each input %", tinfer, "percent"),
        label,
        (f"Batches of {size} %" if size else "Batches %", batch_wise, "percent"),
        right,
    ]


def _remark(name: str, default: str | None) -> str:
    if name == default:
        return " (default)"
    return " (no network)" if name == "pca" else ""


def _figures(key: str, values: Sequence[Any]) -> dict[str, Any]:
    """One entry of a summary, from all seeds' values; nothing if they are neither numbers nor mappings with some."""
    known = [value for value in values if value is not None]
    if all(isinstance(value, int | float) for value in known):
        return {key: _entry(known)}
    if not all(isinstance(value, Mapping) for value in known):
        return {}
    names = dict.fromkeys(name for value in known for name in value)
    content: dict[str, Any] = {}
    for name in names:
        content |= _figures(name, [value.get(name) for value in known])
    return {key: content} if content else {}


def _entry(values: Sequence[Any]) -> dict[str, float | int | None] | None:
    value = estimate_of(values)
    return None if value is None else value._asdict()


def _check_same(runs: Sequence[Results]) -> Results:
    if not runs:
        raise DataError("there is nothing to summarise; give the results of at least one run")
    for key in _SAME:
        different = sorted({str(getattr(run, key)) for run in runs})
        if len(different) > 1:
            words = f"runs with different {key} ({', '.join(different)}) have no common mean"
            raise DataError(f"{words}; summarise each of them separately")
    return runs[0]
