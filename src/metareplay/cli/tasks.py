"""``metareplay tasks``: what a stored model has learned."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from metareplay.cli.trust import TrustNetwork

HELP = """Show the tasks that a stored model has learned.

[bold]Example[/]

  metareplay tasks runs/demo
"""


def tasks(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of a run.")],
    trust_network: TrustNetwork = None,
) -> None:
    """Print a table of tasks and classes, and of what is stored about each task."""
    from rich.console import Console
    from rich.table import Table

    from metareplay.learner.store import load_model

    stored = load_model(model)
    keeper = stored.learner.predictor.keeper
    sizes = keeper.sizes() if keeper.available else [None] * len(stored.tasks)
    drifts = keeper.drift() if keeper.available else [{}] * len(stored.tasks)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("number", "task", "classes", "statistics", "features moved", "not followed"):
        table.add_column(column)
    for index, (task, size, drift) in enumerate(zip(stored.tasks, sizes, drifts, strict=True)):
        classes = ", ".join(str(label) for label in task.classes) or "(regression)"
        table.add_row(str(index), task.name, classes, "-" if size is None else _bytes(size), *_drift(drift))
    Console().print(table, highlight=False)
    if keeper.available:
        typer.echo(LEGEND)


LEGEND = (
    "statistics: what is stored about a task's inputs and features, never examples. features moved, not followed: how "
    "far later tasks changed its network's features, in percent of their variance, and how much of the change its "
    "statistics could not follow (only for the networks in which tasks are compared)"
)


def _drift(by_layer: Mapping[str, tuple[float, float]]) -> tuple[str, str]:
    """The largest over the layers, in percent."""
    if not by_layer:
        return "-", "-"
    moved, left = (max(values) for values in zip(*by_layer.values(), strict=True))
    return f"{100 * moved:.1f} %", f"{100 * left:.1f} %"


def _bytes(size: int) -> str:
    return f"{size / 1024:.0f} KiB" if size < 2**20 else f"{size / 2**20:.1f} MiB"
