"""Tables for the terminal, and the summary of several seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from metareplay.errors import DataError
from metareplay.experiments.results import ParameterCounts, Results
from metareplay.report.base import (
    CRITERION_TITLES,
    MSE,
    TASK_GIVEN,
    Measure,
    batch_wise,
    criteria_of,
    estimate,
    estimate_of,
    right_task,
    show,
    tinfer,
)

_SAME = ("benchmark", "method", "network", "scenario", "problem", "num_tasks")
_NO_FIGURES = {"schema", "seed", "num_tasks", "batch_wise_size", "parameters", "environment"}


def summarise(runs: Sequence[Results]) -> dict[str, Any]:
    """The content of summary.json: results.json with mean, standard error and number of seeds of each figure.

    A figure that is null in all seeds is null; the standard error is null for one seed.
    """
    first = _check_same(runs)
    contents = [run.content() for run in runs]
    summary: dict[str, Any] = {"schema": 1} | {key: contents[0][key] for key in _SAME}
    summary["seeds"] = sorted(run.seed for run in runs)
    for key in dict.fromkeys(key for content in contents for key in content):
        if key in _NO_FIGURES or key in summary:
            continue
        values = [content.get(key) for content in contents]
        names = dict.fromkeys(name for value in values if isinstance(value, Mapping) for name in value)
        if names and not any(isinstance(value[name], list) for value in values if value for name in value):
            summary[key] = {name: _entry([value.get(name) for value in values if value]) for name in names}
        elif all(value is None or isinstance(value, int | float) for value in values):
            summary[key] = _entry(values)
    summary["parameters"] = None if first.parameters is None else first.parameters.model_dump()
    return summary


def run_table(results: Results) -> Table:
    """The figures of one run, for a terminal of 80 columns or more."""
    return _figures_table([results], f"{results.method} on {results.benchmark}, seed {results.seed}")


def seeds_table(runs: Sequence[Results]) -> Table:
    """The figures of several seeds of one method: mean ± standard error."""
    first = _check_same(runs)
    seeds = "1 seed" if len(runs) == 1 else f"{len(runs)} seeds, mean ± standard error"
    return _figures_table(runs, f"{first.method} on {first.benchmark}, {seeds}")


def comparison_table(groups: Mapping[str, Sequence[Results]]) -> Table:
    """One row per method (the keys name them), the paper's columns, each over the seeds of that method."""
    every = [run for runs in groups.values() for run in runs]
    regression = bool(every) and all(run.regression for run in every)
    figures = [*(MSE if regression else TASK_GIVEN[:2]), *_inferred(every, regression)]
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("Method", overflow="fold", vertical="top")
    table.add_column("Seeds", justify="right")
    for figure in figures:
        table.add_column("\n".join(figure.label.replace("-", " ").split(" ", 1)), justify="right", no_wrap=True)
    for label, runs in groups.items():  # the standard error is below its mean, to fit seven columns into 80 characters
        values = (show(estimate(runs, figure.number), figure.kind) for figure in figures)
        table.add_row(label, str(len(runs)), *(value.replace(" ± ", "\n±") for value in values))
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


def _inferred(runs: Sequence[Results], regression: bool) -> list[Measure]:
    if regression:
        return [Measure(right_task("variance"), "Right task", "percent", "")]
    return [
        Measure(tinfer(name), f"TInfer {name}", "percent", CRITERION_TITLES.get(name, "")) for name in criteria_of(runs)
    ]


def _figures_table(runs: Sequence[Results], title: str) -> Table:
    regression = runs[0].regression
    table = Table(
        title=title, box=box.SIMPLE_HEAD, header_style="bold", title_style="bold", caption_style="dim", pad_edge=False
    )
    table.add_column("Figure", no_wrap=True)
    size = runs[0].batch_wise_size
    headers = (
        ("Value", "Right task %")
        if regression
        else ("Each input %", f"Batches of {size} %" if size else "Batches %", "Right task %")
    )
    for header in headers:
        table.add_column(header, justify="right")
    for figure in MSE if regression else TASK_GIVEN:
        value = estimate(runs, figure.number)
        if value is not None or figure.label != "Backward transfer":
            table.add_row(figure.label, show(value, figure.kind))
    table.add_section()
    for name in criteria_of(runs):
        figures = (right_task,) if regression else (tinfer, batch_wise, right_task)
        cells = [show(estimate(runs, figure(name)), "percent") for figure in figures]
        table.add_row(*([f"Task by {name}", "", *cells] if regression else [f"TInfer-Final {name}", *cells]))
    table.caption = parameters_line(runs[0])
    return table


def _entry(values: Sequence[Any]) -> dict[str, float | int | None] | None:
    value = estimate_of([value for value in values if isinstance(value, int | float)])
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
