"""The command ``metareplay``: one small file per subcommand, one place that turns errors into one clear message."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from metareplay.cli import (
    add_task,
    audit,
    compact,
    export,
    figure,
    history,
    new,
    predict,
    remove_task,
    rename_task,
    report,
    reproduce,
    run,
    serve,
    stream,
    tasks,
    tune,
    undo,
    update_task,
)
from metareplay.cli import list as list_command
from metareplay.errors import MetaReplayError
from metareplay.faults import fault_of
from metareplay.version import __version__


class _Commands(TyperGroup):
    """The commands; what Typer has to say about their options is no longer than our own messages."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _short_messages():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _short_messages():
            return super().invoke(ctx)


@contextmanager
def _short_messages() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if isinstance(message := getattr(error, "message", None), str):
            from metareplay.terminal import shortened

            error.message = shortened(message)  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    name="metareplay",
    cls=_Commands,
    help="Bayesian continual learning: learn task after task, forget virtually nothing, infer the task at test time.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", help=run.HELP)(run.run)
app.command("tune", help=tune.HELP)(tune.tune)
app.command("reproduce", help=reproduce.HELP)(reproduce.reproduce)
app.command("report", help=report.HELP)(report.report)
app.command("figure", help=figure.HELP)(figure.figure)
app.command("list", help=list_command.HELP)(list_command.list_)
app.command("predict", help=predict.HELP)(predict.predict)
app.command("new", help=new.HELP)(new.new)
app.command("add-task", help=add_task.HELP)(add_task.add_task)
app.command("update-task", help=update_task.HELP)(update_task.update_task)
app.command("remove-task", help=remove_task.HELP)(remove_task.remove_task)
app.command("rename-task", help=rename_task.HELP)(rename_task.rename_task)
app.command("export", help=export.HELP)(export.export)
app.command("tasks", help=tasks.HELP)(tasks.tasks)
app.command("audit", help=audit.HELP)(audit.audit)
app.command("history", help=history.HELP)(history.history)
app.command("undo", help=undo.HELP)(undo.undo)
app.command("compact", help=compact.HELP)(compact.compact)
app.command("stream", help=stream.HELP)(stream.stream)
app.command("serve", help=serve.HELP)(serve.serve)


@app.callback(invoke_without_command=True)
def _options(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    if version:
        typer.echo(f"metareplay {__version__}")
        raise typer.Exit


def main() -> None:
    """Run a command; a user error exits with code 2 and one message, a bug with code 1 and its traceback in a file."""
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")  # file names may hold bytes that are not text
    try:
        app()
    except MetaReplayError as problem:
        _complain(str(problem))
        sys.exit(2)
    except Exception as error:
        fault = fault_of(error)
        _complain(fault.sentence)
        sys.exit(fault.code)


def _complain(text: str) -> None:
    from rich.console import Console

    from metareplay.terminal import shortened, shown

    Console(stderr=True).print(f"[bold red]error:[/] {shown(shortened(text))}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
