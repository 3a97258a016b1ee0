"""The arrays of ``predictive.safetensors``, from which figures of a run's predictions are drawn."""

import numpy as np
from numpy.typing import NDArray

from metareplay.errors import DataError
from metareplay.report.figures.maps import Plane
from metareplay.report.runs import FinishedRun, Group, Tensors


def first_with(group: Group, name: str) -> tuple[FinishedRun, Tensors] | None:
    """The first seed that stored an array, and all its arrays."""
    for run in group.runs:
        if (arrays := run.predictive()) is not None and name in arrays:
            return run, arrays
    return None


def array_of(run: FinishedRun, arrays: Tensors, name: str) -> NDArray[np.floating]:
    """An array that a figure needs; its absence is an error."""
    if name not in arrays:
        path = run.folder / "predictive.safetensors"
        raise DataError(f"{path} lacks '{name}'; delete the file to make the report without its figure")
    return arrays[name]


def training_points(
    run: FinishedRun, arrays: Tensors, tasks: int
) -> list[tuple[NDArray[np.floating], NDArray[np.floating]]]:
    """The stored training inputs and targets of each task."""
    return [
        (array_of(run, arrays, f"train_x_{task}"), array_of(run, arrays, f"train_y_{task}")) for task in range(tasks)
    ]


def plane_of(run: FinishedRun, arrays: Tensors, tasks: int) -> Plane:
    """The plane of the maps, with each task's training points."""
    points = [(x, np.ravel(y)) for x, y in training_points(run, arrays, tasks)]
    return Plane(array_of(run, arrays, "grid_x"), array_of(run, arrays, "grid_y"), points)


def decision_map(arrays: Tensors, task: int) -> NDArray[np.floating] | None:
    """The probabilities of a task's classes over the plane, if the run stored them."""
    return arrays["probability"][task] if "probability" in arrays else None


def uncertainty_maps(arrays: Tensors) -> Tensors:
    """Maps (T, rows, columns) of each criterion that the arrays hold."""
    maps = {"ent": arrays["entropy"]}
    if "probability" in arrays:
        # (T, C, rows, columns) -> (T, rows, columns)
        maps["conf"] = np.clip(1 - arrays["probability"].max(axis=1), 0, 1)
    return maps | ({"agree": arrays["agree"]} if "agree" in arrays else {})
