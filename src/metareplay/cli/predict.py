"""``metareplay predict``: answers of a stored model for a file of inputs."""

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from metareplay.data.inputs import Inputs

HELP = """Predict with a stored model: label, task and uncertainty for each input, as CSV.

Inputs are of the kind that the model learned from: a table (CSV or parquet) with the same columns, a folder of images or one image, an
IDX file; or always a NumPy file (.npy: N rows; .npz: its array x) or a CSV file of numbers, one row per input. Labels are not needed.

[bold]Examples[/]

  metareplay predict runs/demo inputs.npy

  metareplay predict model/ inputs.csv --task spring --out answers.csv

  metareplay predict runs/photos-pr-bbb new-photos/       one line for each image, with its name
"""


def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of a run.")],
    inputs: Annotated[Path, typer.Argument(help="File or folder of inputs.")],
    criterion: Annotated[str, typer.Option(help="How the task is inferred (metareplay list criteria).")] = "ent",
    task: Annotated[str | None, typer.Option(help="Name of the task, if it is known.")] = None,
    batch_wise: Annotated[int | None, typer.Option(min=1, help="Infer one task for every N successive inputs.")] = None,
    predictive: Annotated[
        str | None, typer.Option(help="samples, or moments: much faster, for Gaussian posteriors on MLPs. Default: as the model was made.")
    ] = None,
    adaptive: Annotated[
        float | None, typer.Option(help="Draw weight samples only until a decision is so many standard errors clear, 4 for example.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File for the answers. Default: the terminal.")] = None,
) -> None:
    """Write one line per input."""
    from metareplay.data.inputs import read_inputs
    from metareplay.files import write_atomically
    from metareplay.learner.store import load_model

    given = {"inference.predictive": predictive, "inference.adaptive": adaptive}
    settings = {key: value for key, value in given.items() if value is not None}
    stored = load_model(model, settings)
    found = read_inputs(inputs, stored.inputs, stored.learner.input_shape)
    text = answers(model, settings, stored.learner.problem, found, criterion, task, batch_wise)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text)


def answers(
    model: Path, settings: dict[str, Any], problem: str, inputs: "Inputs", criterion: str, task: str | None, batch_wise: int | None
) -> str:
    """The predictions as CSV text; inputs that are files of their own are named."""
    from metareplay.estimators import ContinualClassifier, ContinualRegressor

    if problem == "classification":
        found = ContinualClassifier.load(model, settings=settings).predict_full(inputs.x, task, criterion=criterion, batch_wise=batch_wise)
        header = ["label", "task", "probability", "total", "aleatoric", "epistemic"]
        numbers = zip(found.probabilities.max(1), found.total, found.aleatoric, found.epistemic, strict=True)
        rows = [[label, name, *map(_number, row)] for label, name, row in zip(found.labels.tolist(), found.task, numbers, strict=True)]
    else:
        real = ContinualRegressor.load(model, settings=settings).predict_full(inputs.x, task, batch_wise=batch_wise)
        header = ["mean", "std", "task"]
        rows = [[_cell(mean), _cell(std), name] for mean, std, name in zip(real.mean.tolist(), real.std.tolist(), real.task, strict=True)]
    if inputs.names is not None:
        header, rows = ["file", *header], [[name, *row] for name, row in zip(inputs.names, rows, strict=True)]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def _number(value: float) -> str:
    return f"{value:.6g}"


def _cell(values: list[float]) -> str:
    return _number(values[0]) if len(values) == 1 else json.dumps(values)
