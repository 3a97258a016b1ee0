"""``metareplay predict``: predictions of a stored model for a file of inputs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metareplay.cli.trust import TrustNetwork

if TYPE_CHECKING:
    import numpy as np

HELP = """Predict with a stored model: label, task and uncertainty for each input, as CSV.

Inputs must have the format that the model was trained on: a table (CSV or parquet) with the same columns, a folder of
images or one image, an IDX file. A NumPy file (.npy: N rows; .npz: its array x) or a CSV file of numbers, one row per
input, always works; - reads CSV from standard input. Labels are not needed.

[bold]Examples[/]

  metareplay predict runs/demo inputs.npy

  metareplay predict model/ inputs.csv --task spring --out answers.csv

  metareplay predict runs/sales-pr-bbb new.csv --keep id --probabilities all --out answers.parquet

  metareplay predict runs/sales-pr-bbb labelled.csv --score --out answers.jsonl

  cat new.csv | metareplay predict runs/sales-pr-bbb -

  metareplay predict runs/photos-pr-bbb new-photos/       one line per image, with its name
"""


def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of a run.")],
    inputs: Annotated[Path, typer.Argument(help="File or folder of inputs; - for CSV on standard input.")],
    criterion: Annotated[
        str | None,
        typer.Option(help="How the task is inferred (metareplay list criteria). Default: stats, from what is stored."),
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
    keep: Annotated[
        str | None, typer.Option(help="Columns of the inputs to copy to the output, comma-separated: id,name.")
    ] = None,
    probabilities: Annotated[
        str, typer.Option(help="best: of the predicted label and task; all: one column for every label and task.")
    ] = "best",
    score: Annotated[
        bool, typer.Option("--score", help="Compare with the labels in the file, and print the accuracy.")
    ] = False,
    label: Annotated[
        str | None, typer.Option(help="Column of the labels for --score. Default: the one the model learned.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File for the predictions: .csv, .jsonl or .parquet. Default: CSV on the terminal."),
    ] = None,
    trust_network: TrustNetwork = None,
) -> None:
    """Write one line per input."""
    from metareplay.cli.prediction_columns import answer_columns, check_probabilities, with_kept
    from metareplay.cli.prediction_files import parts, writer_for
    from metareplay.cli.prediction_score import score_lines, unknown_lines
    from metareplay.data.inputs import read_inputs
    from metareplay.data.labels import Request
    from metareplay.errors import ConfigError
    from metareplay.estimators import ContinualClassifier, load_estimator
    from metareplay.files import write_answers

    out = None if str(out) == "-" else out
    writer = writer_for(out)  # what cannot be written is refused before any work is done
    check_probabilities(probabilities)
    if label is not None and not score:
        raise ConfigError("--label names the column that --score compares with; add --score, or remove --label")
    settings = {"inference.predictive": predictive, "inference.adaptive": adaptive}
    estimator = load_estimator(model, settings={key: value for key, value in settings.items() if value is not None})
    request = Request(_names(keep), score, label)
    read = read_inputs(inputs, estimator.inputs, estimator.input_shape, request)
    _tell([*(f"note: {note}" for note in read.notes), *(f"warning: {warning}" for warning in read.warnings)], err=True)
    classes = estimator.classes_.tolist() if isinstance(estimator, ContinualClassifier) else []
    lines: list[str] = []
    known: list[np.ndarray | None] = []

    def contents() -> Iterator[bytes]:
        for part in parts(len(read.x), out, read.labels is not None, batch_wise):
            answer = estimator.predict_full(read.x[part], task, criterion=criterion, batch_wise=batch_wise)
            columns = answer_columns(answer, classes, estimator.task_names, every_probability=probabilities == "all")
            known.append(answer.known)
            kept = {name: values[part] for name, values in read.kept.items()}
            lines.extend([] if read.labels is None else score_lines(estimator, answer, read.labels, read.tasks))
            yield writer(with_kept(columns, kept, None if read.files is None else read.files[part]), part.start == 0)

    if out is None:
        for content in contents():
            typer.echo(content.decode(), nl=False)
    else:
        write_answers(out, contents())
    _tell(lines, err=out is None)  # not among the predictions
    _tell(unknown_lines(known), err=True)


def _names(text: str | None) -> Sequence[str]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _tell(lines: Sequence[str], *, err: bool) -> None:
    for line in lines:
        typer.echo(line, err=err)
