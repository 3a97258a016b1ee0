"""Options that say where runs are executed, for run, reproduce and tune."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from metareplay.experiments.engines.base import Engine

WHERE = "Where it runs"
On = Annotated[
    str,
    typer.Option(
        "--on",
        help="local: processes here; slurm: write an array script; ray, or ray=ADDRESS: tasks on a cluster.",
        rich_help_panel=WHERE,
    ),
]
Resources = Annotated[
    str | None,
    typer.Option(help="Of each run on slurm or ray: cpus=2,gpus=1,memory=4G,time=2:00:00.", rich_help_panel=WHERE),
]
ListCommands = Annotated[
    bool,
    typer.Option(
        "--list",
        help="Only print the commands, one per line, for any scheduler; each can be repeated.",
        rich_help_panel=WHERE,
    ),
]


class How(NamedTuple):
    """How runs are executed and shown."""

    jobs: int
    resume: bool
    tensorboard: bool
    quiet: bool
    engine: "Engine"

    def for_runs(self) -> dict[str, Any]:
        """For ``run_seeds``."""
        return {key: getattr(self, key) for key in ("jobs", "resume", "tensorboard", "engine")}


def chosen_engine(on: str, resources: str | None) -> "Engine":
    """The engine that the options name."""
    from metareplay.experiments.engines.choice import engine_named

    return engine_named(on, resources)


def say_how_to_submit(console: "Console", out: Path, left: int, what: str, *, resume: bool = False) -> None:
    """After an array script was written."""
    from metareplay.experiments.engines.slurm import LOGS, SCRIPT
    from metareplay.terminal import shown

    if left:
        console.print(f"{what}: {left} in an array; submit it with", highlight=False)
        console.print(f"  sbatch {shown(out / SCRIPT)}", highlight=False, soft_wrap=True)
        again = "repeat this command, with --resume," if resume else "repeat this command"
        console.print(f"messages go to {shown(out / LOGS)}; {again} to see what has finished", highlight=False)
