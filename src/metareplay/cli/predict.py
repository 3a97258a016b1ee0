"""``metareplay predict``: answers of a stored model for a file of inputs."""

import csv
import io
import json
from pathlib import Path
from typing import Annotated, Any
from zipfile import BadZipFile

import typer

from metareplay.errors import DataError

HELP = """Predict with a stored model: label, task and uncertainty for each input, as CSV.

Inputs are a NumPy file (.npy: N rows; .npz: its array x) or a CSV file of numbers, one row per input.

[bold]Examples[/]

  metareplay predict runs/demo inputs.npy

  metareplay predict model/ inputs.csv --task spring --out answers.csv
"""


def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of a run.")],
    inputs: Annotated[Path, typer.Argument(help="File of inputs: .npy, .npz or .csv.")],
    criterion: Annotated[str, typer.Option(help="How the task is inferred (metareplay list criteria).")] = "ent",
    task: Annotated[str | None, typer.Option(help="Name of the task, if it is known.")] = None,
    batch_wise: Annotated[int | None, typer.Option(min=1, help="Infer one task for every N successive inputs.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the answers. Default: the terminal.")] = None,
) -> None:
    """Write one line per input."""
    from metareplay.experiments.store import load_model
    from metareplay.files import write_atomically

    stored = load_model(model)
    x = read_inputs(inputs, stored.learner.input_shape)
    text = answers(model, stored.learner.problem, x, criterion, task, batch_wise)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text)


def read_inputs(path: Path, shape: tuple[int, ...]) -> Any:
    """An array of inputs with the model's shape; flat rows are reshaped to it."""
    import numpy as np

    try:
        if path.suffix in (".npy", ".npz"):
            x = _read_numpy(path)
        elif path.suffix == ".csv":
            x = _read_csv(path)
        else:
            raise DataError(f"{path} has an unknown ending; give .npy, .npz (array x) or .csv")
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except KeyError as error:
        raise DataError(f"{path} holds no array named x") from error
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise DataError(f"{path} cannot be read as numbers: {error}") from error
    return x.reshape(len(x), *shape) if x.ndim == 2 and x.shape[1] == int(np.prod(shape)) else x


def _read_numpy(path: Path) -> Any:
    import numpy as np

    with path.open("rb") as file:  # numpy does not close a broken archive
        found = np.load(file, allow_pickle=False)
        if isinstance(found, np.ndarray) != (path.suffix == ".npy"):
            raise DataError(f"{path} has the wrong ending; .npy is one array, .npz an archive with the array x")
        return found if path.suffix == ".npy" else found["x"]


def _read_csv(path: Path) -> Any:
    import numpy as np

    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if row]
    if rows and not any(_is_number(cell) for cell in rows[0]):
        rows = rows[1:]  # a header
    for number, row in enumerate(rows, start=1):
        if wrong := [cell for cell in row if not _is_number(cell)]:
            raise DataError(f"{path}: the cell {wrong[0]!r} in row {number} is no number; separate numbers by commas")
    return np.array([[float(cell) for cell in row] for row in rows], dtype=np.float32)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def answers(model: Path, problem: str, x: Any, criterion: str, task: str | None, batch_wise: int | None) -> str:
    """The predictions as CSV text."""
    from metareplay.estimators import ContinualClassifier, ContinualRegressor

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if problem == "classification":
        found = ContinualClassifier.load(model).predict_full(x, task, criterion=criterion, batch_wise=batch_wise)
        writer.writerow(["label", "task", "probability", "total", "aleatoric", "epistemic"])
        best = found.probabilities.max(1)
        for row in zip(found.labels.tolist(), found.task, best, found.total, found.aleatoric, found.epistemic, strict=True):
            writer.writerow([row[0], row[1], *(f"{value:.6g}" for value in row[2:])])
    else:
        real = ContinualRegressor.load(model).predict_full(x, task, batch_wise=batch_wise)
        writer.writerow(["mean", "std", "task"])
        for mean, std, name in zip(real.mean.tolist(), real.std.tolist(), real.task, strict=True):
            writer.writerow([_cell(mean), _cell(std), name])
    return text.getvalue()


def _cell(values: list[float]) -> str:
    return f"{values[0]:.6g}" if len(values) == 1 else json.dumps(values)
