"""``metareplay remove-task``: remove a task from a model."""

from typing import Annotated

import typer

from metareplay.cli.data_options import Model
from metareplay.cli.trust import TrustNetwork

HELP = """Remove a task: its embedding or weights, outputs, statistics and kept examples. Other tasks answer as before.

What it taught a hypernetwork shared by all tasks remains there. Earlier versions of the model hold the task until
metareplay compact removes them; until then, metareplay undo brings it back.

[bold]Example[/]

  metareplay remove-task shop january
"""


def remove_task(
    model: Model,
    name: Annotated[str, typer.Argument(help="Name of the task.")],
    trust_network: TrustNetwork = None,
) -> None:
    """Remove one task."""
    from metareplay.cli.data_options import tell
    from metareplay.living.changes import remove_task as remove

    tell(remove(model, name))
