"""``metareplay serve``: a stored model over HTTP."""

import os
from pathlib import Path
from typing import Annotated

import typer

from metareplay.cli.trust import TrustNetwork

HELP = """Serve a stored model: predictions over HTTP, and a page to try it, at http://127.0.0.1:8000.

Paths: / (a page), /predict (rows as JSON or CSV, images), /tasks, /audit, /model, /health, /metrics (Prometheus), /docs
and /openapi.json. Requests that wait at the same time are predicted together. When the model in the folder is replaced,
the server switches to the new one. Press Ctrl-C to stop it.

[bold]Examples[/]

  metareplay serve runs/demo

  metareplay serve model/ --port 9000 --log predictions.jsonl --log-inputs

  metareplay serve model/ --host 0.0.0.0 --token-file token.txt

  curl -H 'Content-Type: text/csv' --data-binary @new.csv http://127.0.0.1:8000/predict
"""


def serve(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of a run.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for all addresses of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any free one.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token that clients must send. Default: METAREPLAY_TOKEN, if it is set."),
    ] = None,
    writable: Annotated[
        bool | None,
        typer.Option(
            "--writable/--read-only", help="Whether tasks can be added. Default: only on this machine's own addresses."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another name by which a server on localhost may be reached.")
    ] = None,
    max_body: Annotated[int, typer.Option(help="Maximum number of bytes in one request.")] = 16 * 2**20,
    max_rows: Annotated[int, typer.Option(help="Maximum number of inputs in one request.")] = 10_000,
    max_pixels: Annotated[int, typer.Option(help="Maximum number of pixels in one image.")] = 25_000_000,
    timeout: Annotated[float, typer.Option(help="Seconds that one request may take.")] = 60.0,
    queue: Annotated[int, typer.Option(help="Requests that may wait; further ones are told to try again.")] = 256,
    batch: Annotated[
        int, typer.Option(help="Maximum number of inputs of several requests that are predicted together.")
    ] = 2_048,
    pixel_max: Annotated[
        float | None,
        typer.Option(help="Full brightness (1 or 255) in inputs of a model that learned images from arrays."),
    ] = None,
    predictive: Annotated[
        str | None, typer.Option(help="samples, or moments: as for metareplay predict. Default: the model's setting.")
    ] = None,
    adaptive: Annotated[
        float | None,
        typer.Option(help="Draw weight samples only until a decision is clear, as for metareplay predict."),
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="File to append every prediction to, one line of JSON each. Default: none.")
    ] = None,
    log_inputs: Annotated[bool, typer.Option("--log-inputs", help="Log the inputs too.")] = False,
    trust_network: TrustNetwork = None,
) -> None:
    """Serve until stopped."""
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        from metareplay.errors import ConfigError

        raise ConfigError(
            f'{error.name} is not installed, which serve needs; install it with: pip install "metareplay[serve]"'
        ) from error
    from metareplay.serve.server import serve as serve_model
    from metareplay.serve.settings import ServeSettings, read_token

    inference = {"inference.predictive": predictive, "inference.adaptive": adaptive}
    settings = ServeSettings(
        host=host,
        port=port,
        token=read_token(token_file, os.environ),
        writable=writable,
        allowed_hosts=tuple(allow_host or ()),
        max_body=max_body,
        max_rows=max_rows,
        max_pixels=max_pixels,
        timeout=timeout,
        queue=queue,
        batch=batch,
        pixel_max=pixel_max,
        log=log,
        log_inputs=log_inputs,
        inference={key: value for key, value in inference.items() if value is not None},
    )

    def announce(address: str) -> None:
        access = ", ".join(
            (
                "read-only" if settings.read_only else "tasks can be added",
                "without a token" if settings.token is None else "with a token",
            )
        )
        typer.echo(f"{model} is served at {address} ({access}); press Ctrl-C to stop it")

    serve_model(model, settings, announce)
    typer.echo("stopped")
