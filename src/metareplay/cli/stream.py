"""``metareplay stream``: a stored model follows a stream of rows whose task boundaries are unknown."""

from pathlib import Path
from typing import Annotated

import typer

from metareplay.cli.trust import TrustNetwork

HELP = """Follow a stream of labelled rows: learn new tasks as they appear, recognise known ones.

The rows are CSV with a header, from a file or from standard input (-) as they arrive. What is detected and done is
printed as JSON, one event per line: boundary, learned, returned, dismissed, refined. The model is stored after every
task.

[bold]Examples[/]

  metareplay new shop

  metareplay stream shop sales.csv --label product

  tail -f sensor.csv | metareplay stream machine - --label state --set window=50 --set grace=1000

  metareplay stream machine more.csv --set detector=adwin --set refine=true
"""


def stream(
    model: Annotated[Path, typer.Argument(help="Folder of a model, created by metareplay new or run.")],
    rows: Annotated[Path, typer.Argument(help="CSV file with a header; - for standard input.")],
    label: Annotated[
        str | None,
        typer.Option(help="Column to predict. Default: that of the first task; then label, target, class or y."),
    ] = None,
    ignore: Annotated[str | None, typer.Option(help="Columns that are not inputs, comma-separated: id,name.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the stream, such as window=50; repeat it (docs/streams.md)."),
    ] = None,
    trust_network: TrustNetwork = None,
) -> None:
    """Print events as they happen, then a summary."""
    import json
    import sys

    from metareplay.data.settings import DataSettings
    from metareplay.errors import DataError
    from metareplay.learner.config import parse_setting
    from metareplay.living.streaming import follow
    from metareplay.streams.report import StreamEvent
    from metareplay.streams.settings import StreamSettings

    given = dict(parse_setting(pair) for pair in set_ or [])
    settings = StreamSettings.of({key.removeprefix("stream."): value for key, value in given.items()})
    ignored = tuple(part.strip() for part in (ignore or "").split(",") if part.strip())
    data = DataSettings(path=str(rows), label=label, ignore=ignored)

    def told(event: StreamEvent) -> None:
        typer.echo(json.dumps(event.facts(), ensure_ascii=False))

    if str(rows) == "-":
        report = follow(model, data=data, text=sys.stdin.buffer, settings=settings, on_event=told)
    else:
        try:
            with rows.open("rb") as text:
                report = follow(model, data=data, text=text, settings=settings, on_event=told)
        except OSError as error:
            raise DataError(f"{rows} cannot be read: {error.strerror or error}") from error
    learned, returned = len(report.of("learned")), len(report.of("returned"))
    typer.echo(
        f"{report.examples} examples: {learned} new task{'' if learned == 1 else 's'}, {returned} recognised, "
        f"{len(report.changes())} boundaries; {model}",
        err=True,
    )
