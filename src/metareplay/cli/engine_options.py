"""Options that say where runs are executed, for run, reproduce and tune."""

import shlex
import sys
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


Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="How many runs to execute at once. Default: 1; on a cluster, as many as it allows."),
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


def at_once(jobs: int | None, engine: "Engine") -> int:
    """How many runs are executed at once, if ``--jobs`` does not say it."""
    return jobs or (sys.maxsize if engine.queues else 1)


def threads_of_each(jobs: int | None, engine: "Engine", *, listed: bool) -> int:
    """Threads of a run on large inputs. Nobody knows how many commands of a list will run at once on which machine."""
    return 1 if listed and not engine.queues else engine.threads(jobs or 1)


def say_how_to_submit(console: "Console", out: Path, left: int, what: str, *, resume: bool = False) -> None:
    """After an array script was written."""
    from metareplay.experiments.engines.slurm import LOGS, SCRIPT
    from metareplay.terminal import shown

    if left:
        console.print(f"{what}: {left} in an array; submit it with", highlight=False)
        console.print(f"  sbatch {shown(shlex.quote(str(out / SCRIPT)))}", highlight=False, soft_wrap=True)
        again = "repeat this command, with --resume," if resume else "repeat this command"
        console.print(f"messages go to {shown(out / LOGS)}; {again} to see what has finished", highlight=False)
