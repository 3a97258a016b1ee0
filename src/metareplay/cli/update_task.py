"""``metareplay update-task``: new examples, or new classes, for a known task."""

from typing import Annotated

import typer

from metareplay.cli.data_options import Data, Gate, Ignore, Label, MaxChange, Model, Quiet, Settings, SplitBy
from metareplay.cli.trust import TrustNetwork

HELP = """Train a known task further on new examples, of its own classes or of new ones.

Its posterior is the prior of the update; all other tasks are protected as when a task is added. If it is stopped or
killed, the model is unchanged, and the same command continues.

[bold]Examples[/]

  metareplay update-task shop january-late.csv --name january

  metareplay update-task shop january-new-products.csv --name january --gate --max-change 0.05
"""


def update_task(
    model: Model,
    data: Data,
    name: Annotated[str, typer.Option(help="Name of the task (metareplay tasks MODEL).")],
    label: Label = None,
    ignore: Ignore = None,
    split_by: SplitBy = None,
    again: Annotated[
        bool, typer.Option("--again", help="Use data that the task has already learned from; it becomes overconfident.")
    ] = False,
    gate: Gate = False,
    max_change: MaxChange = None,
    set_: Settings = None,
    quiet: Quiet = False,
    trust_network: TrustNetwork = None,
) -> None:
    """Update one task."""
    from metareplay.cli.data_options import data_settings, learning, tell
    from metareplay.living.learning import update_task as update

    options = {"label": label, "ignore": ignore, "split_by": split_by}
    with learning(quiet=quiet, gate=gate, max_change=max_change) as terms:
        tell(update(model, data_settings(data, options, set_), name=name, again=again, terms=terms))
