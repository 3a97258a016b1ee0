"""``metareplay new``: a model without tasks."""

from pathlib import Path
from typing import Annotated

import typer

from metareplay.cli.trust import TrustNetwork

HELP = """Create a new model, without any tasks yet. Its method, network and settings are fixed from now on.

[bold]Examples[/]

  metareplay new shop

  metareplay new shop --method pr-dirac --network mlp-50-50 --seed 1

  metareplay new shop --set training.iterations=2000 --set strategy.strength=100

Then: metareplay add-task shop january.csv --name january --label product
"""


def new(
    model: Annotated[Path, typer.Argument(help="Folder of the model; it must be empty, or not exist yet.")],
    method: Annotated[str, typer.Option(help="Method (metareplay list methods).")] = "pr-bbb",
    network: Annotated[
        str | None,
        typer.Option(help="Main network (metareplay list networks). Default: a small one, for the first task's data."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers. Default: 0.")] = None,
    problem: Annotated[
        str | None, typer.Option(help="classification or regression. Default: inferred from the first task's labels.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, key=value; repeat it (metareplay list settings).")
    ] = None,
    trust_network: TrustNetwork = None,
) -> None:
    """Make a folder with settings."""
    from metareplay.cli.data_options import tell
    from metareplay.errors import ConfigError
    from metareplay.learner.config import parse_setting
    from metareplay.living.changes import new_model

    settings = dict(parse_setting(pair) for pair in set_ or [])
    if wrong := [key for key in settings if key.startswith("data.") or key in ("method", "network", "data_dir")]:
        raise ConfigError(
            f"--set {wrong[0]} is not a setting of a new model; give it to add-task, or see metareplay new --help"
        )
    if problem not in (None, "classification", "regression"):
        raise ConfigError(f"--problem {problem}: must be classification or regression")
    settings |= {} if seed is None else {"seed": seed}
    settings |= {} if problem is None else {"data.problem": problem}
    tell(new_model(model, method=method, network=network, settings=settings))
