"""``metareplay predict``: predictions of a stored model for a file of inputs."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from metareplay.estimators import ClassPrediction, RealPrediction

HELP = """Predict with a stored model: label, task and uncertainty for each input, as CSV.

Inputs have the format that the model was trained on: a table (CSV or parquet) with the same columns, a folder of images
or one image, an IDX file. A NumPy file (.npy: N rows; .npz: its array x) or a CSV file of numbers, one row per input,
always works. Labels are not needed.

[bold]Examples[/]

  metareplay predict runs/demo inputs.npy

  metareplay predict model/ inputs.csv --task spring --out answers.csv

  metareplay predict runs/photos-pr-bbb new-photos/       one line for each image, with its name
"""


def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of a run.")],
    inputs: Annotated[Path, typer.Argument(help="File or folder of inputs.")],
    criterion: Annotated[
        str | None,
        typer.Option(
            help="How the task is inferred (metareplay list criteria). Default: ent; variance for regression."
        ),
    ] = None,
    task: Annotated[str | None, typer.Option(help="Name of the task, if it is known.")] = None,
    batch_wise: Annotated[int | None, typer.Option(min=1, help="Infer one task for every N successive inputs.")] = None,
    predictive: Annotated[
        str | None,
        typer.Option(
            help="samples, or moments: much faster, for Gaussian posteriors on MLPs. Default: the model's setting."
        ),
    ] = None,
    adaptive: Annotated[
        float | None,
        typer.Option(help="Draw weight samples only until a decision is clear by this many standard errors, e.g. 4."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File for the predictions. Default: the terminal.")] = None,
) -> None:
    """Write one line per input."""
    from metareplay.data.inputs import read_inputs
    from metareplay.estimators import load_estimator
    from metareplay.files import write_atomically

    settings = {"inference.predictive": predictive, "inference.adaptive": adaptive}
    estimator = load_estimator(model, settings={key: value for key, value in settings.items() if value is not None})
    read = read_inputs(inputs, estimator.inputs, estimator.input_shape)
    text = as_csv(estimator.predict_full(read.x, task, criterion=criterion, batch_wise=batch_wise), read.names)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text)


def as_csv(answer: "ClassPrediction | RealPrediction", names: Sequence[str] | None) -> str:
    """Predictions as CSV text; inputs from separate files are named."""
    from metareplay.estimators import ClassPrediction

    if isinstance(answer, ClassPrediction):
        header = ["label", "task", "probability", "total", "aleatoric", "epistemic"]
        numbers = zip(answer.probabilities.max(1), answer.total, answer.aleatoric, answer.epistemic, strict=True)
        rows = [
            [label, name, *map(_number, row)]
            for label, name, row in zip(answer.labels.tolist(), answer.task, numbers, strict=True)
        ]
    else:
        header = ["mean", "std", "task"]
        columns = zip(answer.mean.tolist(), answer.std.tolist(), answer.task, strict=True)
        rows = [[_cell(mean), _cell(std), name] for mean, std, name in columns]
    if names is not None:
        header, rows = ["file", *header], [[name, *row] for name, row in zip(names, rows, strict=True)]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def _number(value: float) -> str:
    return f"{value:.6g}"


def _cell(values: list[float]) -> str:
    return _number(values[0]) if len(values) == 1 else json.dumps(values)
