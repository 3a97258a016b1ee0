"""``metareplay audit``: how far every task of a model has moved since it was learned."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metareplay.cli.data_options import Label, MaxChange, Model, TasksBy
from metareplay.cli.trust import TrustNetwork
from metareplay.terminal import shown

if TYPE_CHECKING:
    from metareplay.learner.audit import TaskAudit

HELP = """Show how far every task has moved since it was learned or last updated, without any old data.

Predictions are compared on probes drawn from what is stored about each task, and posteriors in closed form where there
is one. With --max-change the exit code is 1 if a task moved further, so that it can gate a deployment.

[bold]Examples[/]

  metareplay audit shop

  metareplay audit shop --max-change 0.05 && deploy

  metareplay audit shop --data labelled.csv --tasks-by month        with the actual accuracy, then and now

  metareplay audit shop --page audit.html --json > audit.json
"""


def audit(
    model: Model,
    max_change: MaxChange = None,
    data: Annotated[str | None, typer.Option(help="Labelled data, for the actual accuracy now.")] = None,
    tasks_by: TasksBy = None,
    name: Annotated[str | None, typer.Option(help="Name of the task that all of --data belong to.")] = None,
    label: Label = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    page: Annotated[Path | None, typer.Option(help="Also write an HTML page.")] = None,
    trust_network: TrustNetwork = None,
) -> None:
    """Print a table, and gate."""
    from metareplay.cli.data_options import data_settings
    from metareplay.living.overview import audit_model
    from metareplay.report.audit import write_audit

    settings = None if data is None else data_settings(data, {"tasks_by": tasks_by, "label": label})
    entries = audit_model(model, settings, name=name)
    moved = [entry.task for entry in entries if max_change is not None and entry.exceeds(max_change)]
    if as_json:
        content = {"max_change": max_change, "exceeded": moved, "tasks": [entry.as_dict() for entry in entries]}
        typer.echo(json.dumps(content, indent=1))
    else:
        _print(entries, max_change)
    if page is not None:
        path = write_audit([entry.as_dict() for entry in entries], page, model=str(model), limit=max_change)
        typer.echo(f"page: {path}", err=as_json)
    if moved:
        words = f"moved further than {100 * (max_change or 0):.1f} %: {', '.join(moved)}"
        typer.echo(words, err=True)
        raise typer.Exit(1)


def _print(entries: "Sequence[TaskAudit]", limit: float | None) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    scored = any(entry.score is not None for entry in entries)
    columns = ["task", "predictions moved", "worst probe", "labels changed", "posterior", "shift", "accuracy then"]
    for column in [*columns, *(["now"] if scored else [])]:
        table.add_column(column)
    for entry in entries:
        style = "bold red" if limit is not None and entry.exceeds(limit) else None
        cells = [
            shown(entry.task),
            _percent(entry.change),
            _percent(entry.worst),
            _percent(entry.labels),
            *_posterior(entry),
        ]
        cells += [_score(entry.held_out, entry), *([_score(entry.score, entry)] if scored else [])]
        table.add_row(*cells, style=style)
    Console().print(table, highlight=False)
    typer.echo(LEGEND)


LEGEND = (
    "predictions moved: mean total variation distance between the predictions for probes then and now. posterior: "
    "KL(then || now) in nats over all weights, or for point estimates the squared distance; ~ where it is estimated "
    "from some weights. shift: of the weights' means, in standard deviations at that time. A dash: nothing was stored"
)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def _posterior(entry: "TaskAudit") -> tuple[str, str]:
    divergence = entry.divergence
    if divergence is None:
        return "-", "-"
    about = "" if divergence["exact"] else "~"
    error = "" if divergence["exact"] else f" ± {divergence['error']:.2g}"
    return f"{about}{divergence['total']:.3g}{error}", f"{divergence['relative']:.3g}"


def _score(value: float | None, entry: "TaskAudit") -> str:
    if value is None:
        return "-"
    return f"{100 * value:.1f} %" if entry.labels is not None else f"{value:.3g}"
