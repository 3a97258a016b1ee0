"""What a file says is right: the labels, and the tasks, that predictions for its inputs are compared with."""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metareplay.data.columns import LABEL_NAMES, Table, written
from metareplay.data.readers.arrays import read_targets
from metareplay.errors import DataError


class Request(NamedTuple):
    """What is wanted of a file besides its inputs."""

    keep: Sequence[str] = ()
    """Columns to copy."""
    labels: bool = False
    label: str | None = None
    """The column of the labels; None: the one that the model learned, or that is called like one."""


ONLY_INPUTS = Request()


class Labels(NamedTuple):
    """Labels as text, None where missing, and the column or files that they come from."""

    values: Sequence[str | None]
    source: str
    targets: np.ndarray | None = None
    """Several real targets of each input (N, D); the labels are then these as text."""


def spelled(label: Hashable) -> str:
    """A label as tables write it: 1 instead of 1.0 or True."""
    if isinstance(label, bool) or (isinstance(label, float) and label.is_integer()):
        return str(int(label))
    return str(label)


def distinct_names(labels: Sequence[Hashable]) -> list[str]:
    """Labels as text; with quotation marks where a number and a word look the same."""
    names = [str(label) for label in labels]
    return names if len(set(names)) == len(names) else [repr(label) for label in labels]


def labels_of_table(table: Table, known: Mapping[str, Any], request: Request) -> Labels:
    """The labels in a column; an error that names the columns if there is none."""
    if request.label is not None:
        return _column(table, request.label, "--label names it")
    if known.get("label") is not None:
        return _column(table, known["label"], "the label that the model learned; name another with --label")
    names = [name for name in LABEL_NAMES if name in table.columns]
    if not names:
        raise DataError(
            f"{table.source()} has no column called {', '.join(LABEL_NAMES[:-1])} or {LABEL_NAMES[-1]}; "
            f"name the one with the labels with --label: {', '.join(map(repr, list(table.columns)[:20]))}"
        )
    return _column(table, names[0], "it has the labels")


def tasks_of_table(table: Table, known: Mapping[str, Any]) -> Labels | None:
    """The tasks in the column that named them when the model learned, if it is there."""
    name = known.get("task")
    return _column(table, name, "it names the task") if name is not None and name in table.columns else None


def _column(table: Table, name: str, purpose: str) -> Labels:
    return Labels(written(table.column(name, purpose)), name)


def labels_of_arrays(path: Path, count: int) -> Labels:
    """The array y of a .npz file, a label or several targets for each of ``count`` inputs."""
    values = read_targets(path)
    if values.ndim not in (1, 2) or len(values) != count:
        raise DataError(f"{path}: y has shape {values.shape}; --score needs one label for each of {count} inputs")
    if values.ndim == 2 and values.shape[1] > 1:
        return Labels([str(row) for row in values.tolist()], "y", values)
    return Labels([spelled(value) for value in values.reshape(count).tolist()], "y")


def labels_of_folders(files: Sequence[Path]) -> Labels:
    """The names of the folders that images are in."""
    return Labels([file.parent.name for file in files], "the folder of each image")
