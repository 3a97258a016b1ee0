"""``metareplay export``: a stored model's networks for other runtimes."""

from pathlib import Path
from typing import Annotated

import typer

from metareplay.cli.trust import TrustNetwork

HELP = """Write a stored model's networks for other runtimes: a PyTorch state dict, an ONNX graph, or adapters for PEFT.

Inputs are scaled inside, as the model needs them. Labels, tasks and columns are metadata of the file. Without --task
an ONNX graph holds the mean networks of all tasks and chooses the task.

[bold]Examples[/]

  metareplay export model/ --task march --format state-dict --out march.safetensors

  metareplay export model/ --task march --format onnx --out march.onnx

  metareplay export model/ --task march --format onnx --content samples --out march.onnx

  metareplay export model/ --format onnx --out all.onnx

  metareplay export model/ --task march --format peft --out march-adapter
"""
FORMATS = ("state-dict", "onnx", "peft")


def export(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of a run.")],
    out: Annotated[Path, typer.Option(help="File to write; for peft, a folder.")],
    format_: Annotated[
        str, typer.Option("--format", help="state-dict (safetensors), onnx, or peft: a folder of adapters.")
    ] = "onnx",
    task: Annotated[
        str | None, typer.Option(help="Name of the task. Default: all, with the choice of the task.")
    ] = None,
    content: Annotated[str, typer.Option(help="mean, or samples: the weight samples that predictions use.")] = "mean",
    samples: Annotated[int | None, typer.Option(min=1, help="Another number of weight samples.")] = None,
    criterion: Annotated[
        str | None, typer.Option(help="How a graph of all tasks chooses. Default: as predictions do.")
    ] = None,
    trust_network: TrustNetwork = None,
) -> None:
    """Write one file, or a folder of adapters."""
    from metareplay.errors import ConfigError
    from metareplay.estimators import load_estimator

    if format_ not in FORMATS:
        raise ConfigError(f"--format {format_!r} is unknown. Choose one of {', '.join(FORMATS)}")
    estimator = load_estimator(model)
    if format_ == "onnx":
        estimator.export_onnx(out, task, content=content, samples=samples, criterion=criterion)
    else:
        if task is None:
            what = "a state dict holds" if format_ == "state-dict" else "adapters belong to"
            raise ConfigError(f"{what} one task; add --task: {', '.join(estimator.task_names)}")
        if format_ == "peft":
            if criterion is not None:
                raise ConfigError("adapters belong to one task, so there is nothing to choose; remove --criterion")
            estimator.export_peft(out, task, content=content, samples=samples)
            size = sum(path.stat().st_size for path in out.rglob("*.safetensors"))
            typer.echo(f"{out}: {size / 1024:.0f} KiB")
            return
        if content != "mean" or samples is not None or criterion is not None:
            raise ConfigError(
                "a state dict holds the mean network; --content, --samples and --criterion are for --format onnx"
            )
        estimator.export_state_dict(out, task)
    typer.echo(f"{out}: {out.stat().st_size / 1024:.0f} KiB")
