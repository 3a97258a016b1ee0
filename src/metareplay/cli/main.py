"""The command ``metareplay``: one small file per subcommand, one place that turns errors into one clear message."""

import sys

import click
import typer
from rich.console import Console

from metareplay.cli import list as list_command
from metareplay.cli import predict, report, run, tasks
from metareplay.errors import MetaReplayError
from metareplay.version import __version__

app = typer.Typer(
    name="metareplay",
    help="Bayesian continual learning: learn task after task, forget virtually nothing, infer the task at test time.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", help=run.HELP)(run.run)
app.command("report", help=report.HELP)(report.report)
app.command("list", help=list_command.HELP)(list_command.list_)
app.command("predict", help=predict.HELP)(predict.predict)
app.command("tasks", help=tasks.HELP)(tasks.tasks)


@app.callback(invoke_without_command=True)
def _options(version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True)) -> None:
    if version:
        typer.echo(f"metareplay {__version__}")
        raise typer.Exit


def main() -> None:
    """Run a command; a user's error ends with code 2 and one message, Ctrl-C with code 130."""
    try:
        code = app(standalone_mode=False)
    except MetaReplayError as problem:
        _complain(str(problem))
        code = 2
    except click.ClickException as problem:
        problem.show()
        code = 2
    except (KeyboardInterrupt, click.Abort):
        _complain("stopped; continue a run with --resume")
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


def _complain(text: str) -> None:
    console = Console(stderr=True)
    console.print(f"[bold red]error:[/] {_escaped(text)}", highlight=False, soft_wrap=True)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


if __name__ == "__main__":
    main()
