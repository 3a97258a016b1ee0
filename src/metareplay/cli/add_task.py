"""``metareplay add-task``: a stored model learns its next task."""

from typing import Annotated

import typer

from metareplay.cli.data_options import (
    Data,
    Gate,
    Ignore,
    Label,
    MaxChange,
    Model,
    Quiet,
    Settings,
    SplitBy,
    TasksBy,
    TextColumn,
)
from metareplay.cli.trust import TrustNetwork

HELP = """Add a task to a model: one with --name, or several by a column. Its classes may be known or new.

If it is stopped or killed, the model is unchanged, and the same command continues. Inputs are encoded as those of the
first task.

[bold]Examples[/]

  metareplay add-task shop january.csv --name january --label product

  metareplay add-task shop year.csv --tasks-by month

  metareplay add-task shop march.csv --name march --gate --max-change 0.05      refuse it if old tasks move further

  metareplay add-task photos new-photos/ --name spring
"""


def add_task(
    model: Model,
    data: Data,
    name: Annotated[str | None, typer.Option(help="Name of the task: all rows belong to it.")] = None,
    tasks_by: TasksBy = None,
    label: Label = None,
    ignore: Ignore = None,
    text: TextColumn = None,
    split_by: SplitBy = None,
    gate: Gate = False,
    max_change: MaxChange = None,
    set_: Settings = None,
    quiet: Quiet = False,
    trust_network: TrustNetwork = None,
) -> None:
    """Learn one more task, or several."""
    from metareplay.cli.data_options import data_settings, learning, tell
    from metareplay.living.learning import add_tasks

    options = {"tasks_by": tasks_by, "label": label, "ignore": ignore, "text": text, "split_by": split_by}
    with learning(quiet=quiet, gate=gate, max_change=max_change) as terms:
        tell(add_tasks(model, data_settings(data, options, set_), name=name, terms=terms))
