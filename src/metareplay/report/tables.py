"""Tables for the terminal, and the summary of several seeds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rich import box
from rich.table import Table

from metareplay.errors import DataError
from metareplay.experiments.results import ParameterCounts, Results
from metareplay.report.base import (
    KEPT,
    MSE,
    RMSE,
    TASK_GIVEN,
    Kind,
    Measure,
    Number,
    batch_wise,
    estimate,
    estimate_of,
    explained,
    inferred_error,
    right_label,
    right_task,
    root,
    show,
    tinfer,
)
from metareplay.report.continual import continual_line
from metareplay.report.criteria import (
    criteria_of,
    grouped,
    headline_criterion,
    headline_measure,
    inferred,
    stated_default,
)
from metareplay.report.reliance import reliance_line
from metareplay.report.yardsticks import yardsticks
from metareplay.terminal import shown

_SAME = ("benchmark", "method", "network", "scenario", "problem", "num_tasks")
_NO_FIGURES = {"schema", "seed", "num_tasks", "batch_wise_size", "parameters", "environment"}
_LONG = 22  # letters of a name that still fits
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
        table.add_row(shown(label), str(len(runs)), *values)
    return table


def parameters_line(results: Results) -> str | None:
    """The number of trained parameters, relative to one task's posterior and to the main network."""
    counts = results.parameters or ParameterCounts()
    trained = counts.trained
    if trained is None:
        return None
    parts = [f"{trained:,.0f} parameters trained"]
    for count, words in ((counts.posterior, "the posterior of one task"), (counts.main_network, "the main network")):
        if count and trained / count <= results.num_tasks:  # else there is nothing that it saves
            parts.append(f"{trained / count:.2f} times {words} ({count:,.0f})")
    if counts.per_task is not None:
        parts.append(f"{counts.per_task:,.0f} more per task")
    if counts.kept:
        parts.append(f"besides, {counts.kept:,} numbers kept ({KEPT})")
    return "; ".join(parts)


def _columns(runs: Sequence[Results], common: str | None, regression: bool) -> list[Measure]:
    """The columns of a comparison, with the paper's names: task known, by the common criterion, by the paper's."""
    given = [m._replace(label=m.gloss.removeprefix("root of M").replace("SE ", "RMSE ")) for m in RMSE[:2]]
    inferred_by = headline_measure(common, regression=regression)._replace(
        label=f"{'RMSE ' if regression else ''}TInfer {common or ''}".strip(),
    )
    if regression:
        right = [] if common is None else [Measure(right_task(common), "Right task", "percent", "")]
        return [*given, inferred_by, *right]
    names = [name for name in criteria_of(runs) if name in _PAPER_COLUMNS and name != common]
    known = [m._replace(label=m.gloss) for m in TASK_GIVEN[:2]]
    return [*known, inferred_by, *(Measure(tinfer(name), f"TInfer {name}", "percent", "") for name in names)]


def _figures_table(runs: Sequence[Results], title: str, batches: bool) -> Table:
    """In plain words, with the paper's names in brackets."""
    table = Table(
        title=shown(title),
        box=box.SIMPLE_HEAD,
        header_style="bold",
        title_style="bold",
        caption_style="dim",
        pad_edge=False,
    )
    table.caption_justify = "left"
    table.add_column("", no_wrap=True)
    criteria = criteria_of(runs)
    shared = any(estimate(runs, right_label(name)) is not None for name in criteria)
    columns = _inferred_columns(runs[0], batches, shared)
    columns = [
        column
        for i, column in enumerate(columns)
        if i == 0 or any(estimate(runs, column.of(name)) is not None for name in criteria)
    ]
    for column in columns:
        table.add_column(column.header, justify="right")
    _add_known(table, runs)
    default = stated_default(runs)
    for number, (_, names) in enumerate(grouped(criteria, default)):
        table.add_section()
        if number == 0:
            table.add_row("[bold]Task inferred[/]" if shared else "[bold]Task inferred[/] (TInfer-Final)")
        for name in names:
            cells = [show(estimate(runs, column.of(name)), column.kind) for column in columns]
            table.add_row(f" {shown(name)}{_remark(name, default)}", *cells, style="bold" if name == default else None)
    _add_simple(table, runs)
    table.caption = "\n".join(filter(None, (reliance_line(runs), continual_line(runs), parameters_line(runs[0]))))
    return table


def _add_known(table: Table, runs: Sequence[Results]) -> None:
    """Rows with the task known."""
    if runs[0].regression:
        table.add_row("[bold]Task known[/]")
        for words, error in (("when learned (TGiven-During)", MSE[0]), ("at the end (TGiven-Final)", MSE[1])):
            figures = (show(estimate(runs, root(error.number)), "mse"), _share(runs, error.number))
            table.add_row(f" {words}", *figures)
        return
    during, final, forgetting, backward = (estimate(runs, figure.number) for figure in TASK_GIVEN)
    table.add_row("[bold]Task known[/]")
    table.add_row(" when learned (TGiven-During)", show(during, "percent"))
    table.add_row(" at the end (TGiven-Final)", show(final, "percent"))
    table.add_row(" forgetting", show(forgetting, "percent"))
    if backward is not None:
        table.add_row(" backward transfer", show(backward, "percent"))


def _add_simple(table: Table, runs: Sequence[Results]) -> None:
    """Rows of what the figures are compared with: simple models that are not told the task, and guessing."""
    sticks = yardsticks(runs)
    if sticks:
        table.add_section()
    names = list(dict.fromkeys(stick.model for stick in sticks if stick.model))
    if names:
        model = names[0] if len(names) == 1 and len(names[0]) < _LONG else "Simple models"
        table.add_row(f"[bold]{model}[/], task unknown")
    for stick in sticks:
        words = f" {stick.data}" if stick.data else stick.label
        if runs[0].regression:
            table.add_row(words, show(estimate(runs, root(stick.inferred)), "mse"), _share(runs, stick.inferred))
        else:
            table.add_row(words, show(estimate(runs, stick.inferred), "percent"))


def _share(runs: Sequence[Results], error: Number) -> str:
    value = estimate(runs, explained(error))
    return "" if value is None else show(value, "share")


class _Column(NamedTuple):
    """A column of figures with the task inferred: heading, the figure of a criterion, and its format."""

    header: str
    of: Callable[[str], Number]
    kind: Kind


def _inferred_columns(first: Results, batches: bool, shared: bool) -> list[_Column]:
    """The columns of a run's table; the first has what a user gets: right labels where tasks share them."""
    right = _Column("Right task %", right_task, "percent")
    if first.regression:
        errors = _Column("RMSE", lambda name: root(inferred_error(name)), "mse")
        return [errors, _Column("R²", lambda name: explained(inferred_error(name)), "share"), right]
    size = first.batch_wise_size
    each = [_Column("TInfer Final %" if shared else "Each input %", tinfer, "percent")]
    if shared:
        each.insert(0, _Column("Right label %", right_label, "percent"))
    together = [_Column(f"Batches of {size} %" if size else "Batches %", batch_wise, "percent")] if batches else []
    return [*each, *together, right]


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
