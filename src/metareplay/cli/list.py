"""``metareplay list``: what there is to choose from."""

from typing import Annotated

import typer

from metareplay.errors import ConfigError

HELP = """List benchmarks, methods, networks, criteria, tables, figures, recipes or settings.

[bold]Examples[/]

  metareplay list methods

  metareplay list settings
"""

KINDS = ("benchmarks", "methods", "networks", "criteria", "tables", "figures", "recipes", "settings")


def list_(what: Annotated[str, typer.Argument(help=f"One of {', '.join(KINDS)}.")]) -> None:
    """Print a table."""
    from rich.console import Console
    from rich.table import Table

    if what not in KINDS:
        raise ConfigError(f"list {what!r} is unknown; choose one of {', '.join(KINDS)}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    header, rows = entries(what)
    for column in header:
        table.add_column(column, overflow="fold", no_wrap=column == header[0])
    for row in rows:
        table.add_row(*row)
    Console().print(table, highlight=False)


def entries(what: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows of one list."""
    from metareplay.benchmarks.registry import BENCHMARKS
    from metareplay.inference.criteria import CRITERIA
    from metareplay.learner.config import setting_descriptions
    from metareplay.learner.methods import METHODS
    from metareplay.learner.recipe_book import all_recipes
    from metareplay.nets.registry import listed_networks
    from metareplay.paper.tables import paper_tables

    if what == "benchmarks":
        found = [
            (b.name, str(b.num_tasks), b.scenario.value, b.default_network, b.description) for b in BENCHMARKS.values()
        ]
        return ("benchmark", "tasks", "scenario", "network", "what it is"), [tuple(row) for row in found]
    if what == "methods":
        return ("method", "what it is"), [(method.name, method.description) for method in METHODS.values()]
    if what == "networks":
        return ("network", "what it is"), [(part.title, part.description) for part in listed_networks()]
    if what == "criteria":
        return ("criterion", "chooses the task with the ..."), [(c.name, c.description) for c in CRITERIA.values()]
    if what == "tables":
        tables = paper_tables().values()
        return ("table", "label", "rows", "what it is"), [
            (t.name, t.label, str(len(t.own_rows)), t.title) for t in tables
        ]
    if what == "figures":
        from metareplay.report.figures.drawings import DRAWINGS

        return ("figure", "what it shows"), [(name, kind.description) for name, kind in DRAWINGS.items()]
    if what == "recipes":
        return ("recipe", "source"), [(recipe.name, recipe.source) for recipe in all_recipes()]
    return ("setting", "meaning"), list(setting_descriptions().items())
