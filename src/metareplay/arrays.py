"""A user's arrays, tensors and PyTorch datasets as the tensors that the library works on."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from metareplay.errors import DataError

Inputs = npt.ArrayLike | Tensor | Dataset[Any]
Targets = npt.ArrayLike | Tensor | Sequence[Any]


def inputs_and_targets(x: Inputs, y: Targets | None, shape: tuple[int, ...] | None) -> tuple[Tensor, Any]:
    """Inputs (N, ...) as float32 and raw targets, from arrays or a dataset of pairs."""
    if isinstance(x, Dataset):
        if y is not None:
            raise DataError("a PyTorch dataset brings its own targets; leave y out")
        x, y = _unpack(x)
    elif y is None:
        raise DataError("targets are missing; give learn_task(X, y), or a PyTorch dataset of (input, target) pairs")
    return to_inputs(x, shape), y


def _unpack(dataset: Dataset[Any]) -> tuple[Tensor, list[Any]]:
    try:
        size = len(dataset)  # type: ignore[arg-type]
    except TypeError as error:
        raise DataError("the dataset has no length; give a map-style dataset (with __len__ and __getitem__)") from error
    pairs = [dataset[index] for index in range(size)]
    if not pairs:
        raise DataError("the dataset is empty; every task needs at least one example")
    if not isinstance(pairs[0], tuple | list) or len(pairs[0]) < 2:
        raise DataError("the dataset's items must be pairs (input, target)")
    shapes = {tuple(np.shape(pair[0])) for pair in pairs}
    if len(shapes) > 1:
        raise DataError(f"the dataset's inputs have different shapes ({', '.join(map(str, sorted(shapes)[:3]))}); they must all be equal")
    return torch.stack([torch.as_tensor(np.asarray(pair[0])) for pair in pairs]), [pair[1] for pair in pairs]


def to_inputs(x: Inputs, shape: tuple[int, ...] | None) -> Tensor:
    """Inputs as float32 (N, ...), checked against what the model knows; of a dataset's pairs only the inputs."""
    if isinstance(x, Dataset):
        x = _unpack(x)[0]
    if isinstance(x, Tensor):
        found = x.detach().cpu().float()
    else:
        try:
            found = torch.from_numpy(np.array(x, dtype=np.float32))
        except (TypeError, ValueError) as error:
            raise DataError(f"the inputs are no array of numbers ({error}); give N rows of equal shape") from error
    if found.ndim < 2:
        raise DataError(f"inputs have shape {tuple(found.shape)}; give one row per example, (N, 1) for one feature: reshape(-1, 1)")
    if len(found) == 0:
        raise DataError("there are no inputs (0 rows); give at least one example")
    if shape is not None and tuple(found.shape[1:]) != shape:
        raise DataError(f"inputs have shape {tuple(found.shape[1:])} per example, but this model learned inputs of shape {shape}")
    if not torch.isfinite(found).all():
        row = int((~torch.isfinite(found.flatten(1))).any(1).nonzero()[0])
        raise DataError(f"the inputs contain NaN or infinite values (first in row {row}); clean the data first")
    return found


def plain_labels(y: Any) -> list[Hashable]:
    """Class labels as plain hashable Python values."""
    if isinstance(y, Tensor | np.ndarray):
        if y.ndim != 1 and not (y.ndim == 2 and y.shape[1] == 1):
            raise DataError(f"labels have shape {tuple(y.shape)}; give one label per example, shape (N,)")
        values = y.reshape(-1).tolist()
    else:
        if not isinstance(y, Iterable):
            raise DataError(f"labels are {y!r}; give one label per example, shape (N,)")
        values = [
            value.item() if isinstance(value, np.generic) or (isinstance(value, Tensor) and value.numel() == 1) else value for value in y
        ]
    for row, value in enumerate(values):
        if isinstance(value, Tensor) or not _is_hashable(value):
            raise DataError(f"the label {value!r} in row {row} is not hashable; use strings, numbers or tuples")
        if isinstance(value, float) and value != value:
            raise DataError(f"the label in row {row} is missing (NaN); every example needs a label")
    return values


def _is_hashable(value: Any) -> bool:
    """Also looks into tuples."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def to_real_targets(y: Any) -> Tensor:
    """Regression targets as float32 (N, D)."""
    try:
        values = y.detach().cpu().float() if isinstance(y, Tensor) else torch.from_numpy(np.array(y, dtype=np.float32))
    except (TypeError, ValueError) as error:
        raise DataError(f"the targets are no array of numbers ({error})") from error
    if values.ndim not in (1, 2):
        raise DataError(f"targets have shape {tuple(values.shape)}; give (N,) or (N, D)")
    if values.numel() == 0:
        raise DataError(f"targets have shape {tuple(values.shape)}: there are none; give (N,) or (N, D)")
    if not torch.isfinite(values).all():
        raise DataError("the targets contain NaN or infinite values; clean the data first")
    return values.reshape(len(values), -1)
