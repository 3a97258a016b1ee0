"""``metareplay tasks``: what a stored model has learned."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from metareplay.cli.data_options import Label, Model, TasksBy
from metareplay.cli.trust import TrustNetwork
from metareplay.terminal import shown

if TYPE_CHECKING:
    from metareplay.living.overview import TaskOverview

HELP = """Show the tasks that a stored model has learned.

[bold]Examples[/]

  metareplay tasks runs/demo

  metareplay tasks shop --data labelled.csv --tasks-by month        with the accuracy on these data now

  metareplay tasks shop --json
"""


def tasks(
    model: Model,
    data: Annotated[str | None, typer.Option(help="Labelled data, to see how well each task does now.")] = None,
    tasks_by: TasksBy = None,
    name: Annotated[str | None, typer.Option(help="Name of the task that all of --data belong to.")] = None,
    label: Label = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    trust_network: TrustNetwork = None,
) -> None:
    """Print a table of tasks and classes, and of what is stored about each task."""
    from rich.console import Console

    from metareplay.cli.data_options import data_settings
    from metareplay.cli.narrow_tables import print_columns
    from metareplay.living.overview import tasks_of
    from metareplay.living.place import model_folder, read_new

    if read_new(model_folder(model)) is not None:
        typer.echo("[]" if as_json else f"no tasks yet; add one with: metareplay add-task {model} DATA --name NAME")
        return
    settings = None if data is None else data_settings(data, {"tasks_by": tasks_by, "label": label})
    rows = tasks_of(model, settings, name=name)
    if as_json:
        typer.echo(json.dumps([row.as_dict() for row in rows], indent=1))
        return
    then, now = ("accuracy", "now") if any(row.classes for row in rows) else ("squared error", "now")
    columns = ["", "task", "classes", "examples", "date", then, *([now] if data is not None else [])]
    headers = [*columns, "stored", "features moved", "not followed"]
    cells = [[str(index), *_cells(row, with_data=data is not None)] for index, row in enumerate(rows)]
    print_columns(Console(), headers, cells, first=2, whole=("task", "date", then, "now", "stored"))
    typer.echo(f"{then}: {LEGEND}")


LEGEND = (
    "on the examples that were held out when the task was learned. examples: all that it was given, with those. stored:"
    " for this task alone, including statistics of its inputs and features, never examples. features moved, not "
    "followed: how far later tasks changed its network's features, in percent of their variance, and how much of the "
    "change its statistics could not follow (only for the networks in which tasks are compared)"
)


def _cells(row: "TaskOverview", *, with_data: bool) -> list[str]:
    classes = ", ".join(str(label) for label in row.classes) or "(regression)"
    cells = [shown(row.name), shown(classes), "-" if row.examples is None else str(row.examples), row.date[:10] or "-"]
    cells += [_score(row.held_out, row), *([_score(row.score, row)] if with_data else [])]
    return [*cells, _bytes(row.bytes), _percent(row.moved), _percent(row.unexplained)]


def _score(value: float | None, row: "TaskOverview") -> str:
    return "-" if value is None else f"{100 * value:.1f} %" if row.classes else f"{value:.3g}"


def _percent(value: float | None) -> str:
    if value is None:
        return "-"
    return "> 999 %" if value > 9.99 else f"{100 * value:.1f} %"  # beyond that the number says nothing more


def _bytes(size: int) -> str:
    return f"{size / 1024:.0f} KiB" if size < 2**20 else f"{size / 2**20:.1f} MiB"
