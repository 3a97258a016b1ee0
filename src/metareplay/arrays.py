"""A user's arrays, tensors and PyTorch datasets, converted to the tensors that the library works on."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from metareplay.errors import DataError

Inputs = npt.ArrayLike | Tensor | Dataset[Any]
Targets = npt.ArrayLike | Tensor | Sequence[Any]


LARGEST = 1e18
"""Numbers beyond this are refused: their squares do not fit the arithmetic that networks are trained in."""


MOST_FRACTIONS, MOST_INTEGERS = 20, 100
"""Labels of type float with more different values than this, with fractions or without, may be measurements."""


def bytes_of(tensor: Tensor) -> memoryview:
    """The numbers of a tensor as they are in memory, in order; without a copy if possible."""
    flat = tensor.detach().cpu().contiguous().view(-1)
    if flat.stride(0) != 1:  # a single number counts as contiguous whatever its stride
        flat = flat.clone(memory_format=torch.contiguous_format)
    data: memoryview = flat.view(torch.uint8).numpy().data
    return data


class Unpacked(NamedTuple):
    """A dataset's items: inputs (N, ...), targets, and third elements (task labels in streams), if all have one."""

    x: Tensor
    y: list[Any]
    extra: list[Any] | None


def inputs_and_targets(x: Inputs, y: Targets | None, shape: tuple[int, ...] | None) -> tuple[Tensor, Any]:
    """Inputs (N, ...) as float32 and raw targets, from arrays or a dataset of pairs."""
    dataset = dataset_in(x)
    if dataset is not None:
        if y is not None:
            raise DataError("a PyTorch dataset has its own targets; leave y out")
        x, y, _ = unpack(dataset)
    elif y is None:
        raise DataError(
            "targets are missing: learning requires y to be passed, but the target y is None; give learn_task(X, y), "
            "or a PyTorch dataset of (input, target) pairs"
        )
    return to_inputs(x, shape), y


def dataset_in(x: Any) -> Any | None:
    """The map-style dataset that ``x`` is, or has as ``x.dataset`` like data loaders and experiences; else None."""
    if isinstance(x, Dataset):
        return x
    if hasattr(x, "toarray") and hasattr(x, "nnz"):
        raise DataError("the inputs are a sparse matrix, and sparse input is not supported; give X.toarray()")
    if isinstance(x, Tensor | np.ndarray | list | tuple | str | bytes | Mapping) or hasattr(x, "__array__"):
        return None
    if hasattr(x, "__len__") and hasattr(x, "__getitem__"):
        return x
    inner = getattr(x, "dataset", None)
    return None if inner is None else dataset_in(inner)


def unpack(dataset: Any) -> Unpacked:
    """All items of a dataset: (input, target), or (input, target, task)."""
    try:
        size = len(dataset)
    except TypeError as error:
        raise DataError("the dataset has no length; give a map-style dataset (with __len__ and __getitem__)") from error
    items = [_item(dataset, index) for index in range(size)]
    if not items:
        raise DataError("the dataset is empty; every task needs at least one example")
    for index, item in enumerate(items):
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise DataError(
                f"item {index} of the dataset is not a pair; items must be (input, target) or (input, target, task)"
            )
    inputs = [_input(item[0], index) for index, item in enumerate(items)]
    shapes = {tuple(part.shape): None for part in inputs}
    if len(shapes) > 1:
        odd = next(index for index, part in enumerate(inputs) if part.shape != inputs[0].shape)
        listed = ", ".join(map(str, sorted(shapes)[:3]))
        raise DataError(
            f"the dataset's inputs have different shapes ({listed}); they must all be the same, "
            f"and item {odd} is the first that differs"
        )
    extra = [_plain(item[2]) for item in items] if all(len(item) > 2 for item in items) else None
    return Unpacked(torch.stack(inputs), [item[1] for item in items], extra)


def _item(dataset: Any, index: int) -> Any:
    try:
        return dataset[index]
    except Exception as error:  # whatever the user's dataset does
        reason = (str(error).splitlines() or [""])[0]
        raise DataError(
            f"item {index} of the dataset cannot be read ({type(error).__name__}: {reason}); correct or remove it"
        ) from error


def _input(value: Any, index: int) -> Tensor:
    """One input as a tensor; a Pillow image as torchvision's ToTensor gives it: (C, H, W) in [0, 1]."""
    if hasattr(value, "getbands"):
        pixels = torch.from_numpy(np.array(value, dtype=np.float32) / 255)
        return pixels.unsqueeze(0) if pixels.ndim == 2 else pixels.permute(2, 0, 1)  # (H, W) or (H, W, C) -> (C, H, W)
    try:
        return value.detach().cpu() if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError) as error:
        raise DataError(f"the input of item {index} of the dataset is not an array of numbers ({error})") from error


def _plain(value: Any) -> Any:
    return (
        value.item() if isinstance(value, np.generic) or (isinstance(value, Tensor) and value.numel() == 1) else value
    )


def to_inputs(x: Inputs, shape: tuple[int, ...] | None) -> Tensor:
    """Inputs as float32 (N, ...), checked against the model's input shape; a dataset's targets are dropped."""
    if (dataset := dataset_in(x)) is not None:
        x = unpack(dataset).x
    inputs = _floats(x)
    if inputs.ndim < 2:
        raise DataError(
            f"inputs have shape {tuple(inputs.shape)}. Reshape your data: one row per example, (N, 1) for one feature "
            "(reshape(-1, 1)), (1, D) for one example"
        )
    if len(inputs) == 0:
        raise DataError("there are no inputs (0 rows); give at least one example")
    if inputs.numel() == 0:
        shape_given = f"(shape={tuple(inputs.shape)})"
        raise DataError(f"the inputs have 0 feature(s) {shape_given} while a minimum of 1 is required.")
    if shape is not None and tuple(inputs.shape[1:]) != shape:
        raise DataError(
            f"inputs have shape {tuple(inputs.shape[1:])} per example, "
            f"but this model was trained on inputs of shape {shape}"
        )
    if (fault := fault_in(inputs, x)) is not None:
        raise DataError(f"the inputs contain {fault}; clean the data first")
    return inputs


def _floats(x: Any) -> Tensor:
    """Real numbers as float32."""
    try:
        raw = x.detach().cpu() if isinstance(x, Tensor) else np.asarray(x)
        if raw.is_complex() if isinstance(raw, Tensor) else np.iscomplexobj(raw):
            raise TypeError("Complex data not supported")
        with np.errstate(over="ignore"):  # whoever uses them names what is too large
            return raw.float() if isinstance(raw, Tensor) else torch.from_numpy(np.array(raw, dtype=np.float32))
    except (TypeError, ValueError) as error:
        raise DataError(f"the inputs are not numbers ({error}); give N rows of equal shape") from error


def fault_in(values: Tensor, source: Any) -> str | None:
    """What makes numbers (N, ...) unusable and where, as they were in the source; None if nothing does."""
    low, high = values.aminmax()  # NaN if there is any
    if bool(low >= -LARGEST) and bool(high <= LARGEST):
        return None
    wrong = ~(values.abs() <= LARGEST).flatten(1)  # (N, ...) -> (N, D)
    row, column = (int(index) for index in wrong.nonzero()[0])
    raw = np.asarray(source[row] if isinstance(source, Tensor) else np.asarray(source)[row]).reshape(-1)[column]
    if raw is None:
        return f"a missing value, None (row {row}, column {column})"
    value = float(raw)
    if not np.isfinite(value):
        return f"NaN or infinite values (first in row {row}, column {column})"
    return f"the value {value:g} (row {row}, column {column}), which is too large (beyond {LARGEST:g})"


def is_missing(value: Any) -> bool:
    """Whether a value stands for a missing one: None, NaN, or pandas' NA and NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def plain_labels(y: Any) -> list[Hashable]:
    """Class labels as plain hashable Python values."""
    y = y if isinstance(y, Tensor) or not hasattr(y, "__array__") else np.asarray(y)
    if isinstance(y, Tensor | np.ndarray):
        if y.ndim != 1 and not (y.ndim == 2 and y.shape[1] == 1):
            raise DataError(f"labels have shape {tuple(y.shape)}; give one label per example, shape (N,)")
        values = y.reshape(-1).tolist()
    else:
        if not isinstance(y, Iterable):
            raise DataError(f"labels are {y!r}; give one label per example, shape (N,)")
        values = [_plain(value) for value in y]
    for row, value in enumerate(values):
        if isinstance(value, Tensor) or not _is_hashable(value):
            raise DataError(f"the label {value!r} in row {row} is not hashable; use strings, numbers or tuples")
        if is_missing(value):
            name = "NaN" if isinstance(value, float) else value
            raise DataError(f"the label in row {row} is missing ({name}); every example needs a label")
        if value in (float("inf"), float("-inf")):
            raise DataError(f"the label in row {row} is not a class: Input y contains infinity; correct or remove it")
    return values


def class_labels(y: Any, regression: str) -> list[Hashable]:
    """Class labels as plain values; numbers that look like measurements are refused, naming what ``regression`` is."""
    labels = plain_labels(y)
    numbers = {label for label in labels if isinstance(label, float)}
    fraction = next((number for number in numbers if not number.is_integer()), None)
    if len(numbers) > (MOST_INTEGERS if fraction is None else MOST_FRACTIONS):
        example = next(iter(numbers)) if fraction is None else fraction
        raise DataError(
            f"the labels are {len(numbers)} different numbers such as {example:g}: are they measurements or classes? "
            f"To predict numbers (continuous targets), use {regression}; if they are classes, give text or integers"
        )
    return labels


def _is_hashable(value: Any) -> bool:
    """Whether a value, including everything in a tuple, is hashable."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def to_real_targets(y: Any) -> Tensor:
    """Regression targets as float32 (N, D)."""
    try:
        with np.errstate(over="ignore"):  # named below
            array = None if isinstance(y, Tensor) else np.array(y, dtype=np.float32)
        values = y.detach().cpu().float() if array is None else torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        raise DataError(f"the targets are not numbers ({error})") from error
    if values.ndim not in (1, 2):
        raise DataError(f"targets have shape {tuple(values.shape)}; give (N,) or (N, D)")
    if values.numel() == 0:
        raise DataError(f"targets have shape {tuple(values.shape)}, so there are none; give (N,) or (N, D)")
    values = values.reshape(len(values), -1)  # (N,) -> (N, 1)
    if (fault := fault_in(values, y)) is not None:
        raise DataError(f"the targets contain {fault}; clean the data first")
    return values
