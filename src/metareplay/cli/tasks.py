"""``metareplay tasks``: what a stored model has learned."""

from pathlib import Path
from typing import Annotated

import typer

HELP = """Show the tasks that a stored model has learned.

[bold]Example[/]

  metareplay tasks runs/demo
"""


def tasks(model: Annotated[Path, typer.Argument(help="Folder of a model, or of a run.")]) -> None:
    """Print a table of tasks and classes."""
    from rich.console import Console
    from rich.table import Table

    from metareplay.learner.store import load_model

    stored = load_model(model)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("number", "task", "classes"):
        table.add_column(column)
    for index, task in enumerate(stored.tasks):
        table.add_row(str(index), task.name, ", ".join(str(label) for label in task.classes) or "(regression)")
    Console().print(table, highlight=False)
