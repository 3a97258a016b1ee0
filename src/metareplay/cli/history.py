"""``metareplay history``: what happened to a model, and when."""

import json
from typing import Annotated

import typer

from metareplay.cli.data_options import Model
from metareplay.terminal import shown

HELP = """Show what happened to a model: when, to which task, with how many examples and which figures.

[bold]Examples[/]

  metareplay history shop

  metareplay history shop --json
"""


def history(
    model: Model, as_json: Annotated[bool, typer.Option("--json", help="As JSON, with fingerprints of data.")] = False
) -> None:
    """Print the history."""
    from rich.console import Console

    from metareplay.cli.narrow_tables import print_columns
    from metareplay.learner.store import read_history
    from metareplay.living.place import model_folder

    entries = read_history(model_folder(model))
    if as_json:
        typer.echo(json.dumps([entry.model_dump(mode="json") for entry in entries], indent=1))
        return
    if not entries:
        typer.echo("no changes are recorded")
        return
    headers, rows = ("version", "date", "what", "task", "examples", "data", "figures"), []
    for entry in entries:
        figures = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in entry.figures.items())
        figures = figures or ", ".join(f"{key}: {value}" for key, value in entry.facts.items() if key in SHOWN)
        examples = "" if entry.examples is None else str(entry.examples)
        date = entry.date[:16].replace("T", " ")
        told = (str(entry.generation), date, entry.verb, ", ".join(entry.tasks), examples)
        rows.append([shown(cell) for cell in (*told, (entry.fingerprint or "")[:8], figures)])
    print_columns(Console(), headers, rows, first=1)


SHOWN = ("remains", "undone")
