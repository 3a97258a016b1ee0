"""Options of commands that read a user's data, and what they have in common besides."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from metareplay.data.settings import DataSettings
    from metareplay.living.learning import Done, Terms

Model = Annotated[Path, typer.Argument(help="Folder of a model, or of a run.")]
Data = Annotated[str, typer.Argument(help="Your data: table, arrays, folder of images, or hf:owner/name.")]
TasksBy = Annotated[
    str | None, typer.Option(help="Column that names the task of each row, or classes:2, or classes:2,3,4.")
]
Label = Annotated[
    str | None,
    typer.Option(help="Column to predict. Default: that of the first task; then label, target, class or y."),
]
TextColumn = Annotated[str | None, typer.Option("--text", help="Column of texts, for a network that reads them.")]
Ignore = Annotated[str | None, typer.Option(help="Columns that are not inputs, comma-separated: id,name.")]
SplitBy = Annotated[str | None, typer.Option(help="Column that says train or test; test rows are not learned from.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the data, such as data.missing=fill; repeat it."),
]
MaxChange = Annotated[
    float | None,
    typer.Option(
        min=0, max=1, help="The most that a known task's predictions may have moved: 0 not at all, 1 all of them."
    ),
]
Gate = Annotated[
    bool, typer.Option("--gate", help="Leave the model unchanged if other tasks would move further than --max-change.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only what was done.")]


def data_settings(path: str, options: Mapping[str, Any], overrides: Sequence[str] | None = None) -> "DataSettings":
    """Where the data are and how they are read."""
    from metareplay.data.reading import absolute
    from metareplay.errors import ConfigError
    from metareplay.learner.config import build_config, parse_setting

    given = dict(parse_setting(pair) for pair in overrides or [])
    if wrong := [key for key in given if not key.startswith("data.")]:
        raise ConfigError(
            f"--set {wrong[0]}: settings of a model are fixed when it is created (metareplay new); only those of its "
            "data can be given here, such as data.missing=fill"
        )
    chosen = {f"data.{key}": value for key, value in options.items() if value is not None}
    return build_config({}, {"data.path": absolute(path), **chosen, **given}, "--set").data


def terms_of(*, quiet: bool, max_change: float | None) -> "Terms":
    """How a verb is carried out on a terminal: a progress bar, Ctrl-C saves, notes on the data."""
    from rich.console import Console

    from metareplay.interrupts import stop_on_signal
    from metareplay.living.learning import Terms
    from metareplay.training.progress import LiveProgress, NullObserver

    observer = NullObserver() if quiet else LiveProgress(Console(stderr=True))
    note = (lambda text: None) if quiet else (lambda text: typer.echo(f"note: {text}", err=True))
    return Terms(observer, stop_on_signal(), max_change, note)


def tell(done: "Sequence[Done] | Done") -> None:
    """Say what was done."""
    from metareplay.living.learning import Done

    for each in [done] if isinstance(done, Done) else done:
        typer.echo(each.text)


@contextmanager
def learning(*, quiet: bool, gate: bool, max_change: float | None) -> "Iterator[Terms]":
    """How a task is learned; a gate needs a limit and a limit needs a gate; the exit code is 1 if the gate refuses the
    task."""
    from metareplay.errors import ConfigError
    from metareplay.living.learning import GateClosed

    if gate != (max_change is not None):
        raise ConfigError("--gate and --max-change have an effect only together; give both or neither")
    terms = terms_of(quiet=quiet, max_change=max_change)
    try:
        yield terms
    except GateClosed as refused:
        typer.echo(str(refused), err=True)
        raise typer.Exit(1) from refused
    finally:
        terms.observer.close()
