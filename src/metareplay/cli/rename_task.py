"""``metareplay rename-task``: another name for a task."""

from typing import Annotated

import typer

from metareplay.cli.data_options import Model
from metareplay.cli.trust import TrustNetwork

HELP = """Give a task another name.

[bold]Example[/]

  metareplay rename-task shop january winter
"""


def rename_task(
    model: Model,
    name: Annotated[str, typer.Argument(help="Current name of the task.")],
    new: Annotated[str, typer.Argument(help="New name.")],
    trust_network: TrustNetwork = None,
) -> None:
    """Rename one task."""
    from metareplay.cli.data_options import tell
    from metareplay.living.changes import rename_task as rename

    tell(rename(model, name, new))
