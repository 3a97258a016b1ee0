"""NumPy files: x and y, optionally task and a test set; never pickled objects."""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import IO, BinaryIO
from zipfile import ZipFile

import numpy as np
import torch
from torch import Tensor

from metareplay.arrays import fault_in
from metareplay.data.base import Examples, Place, encode_labels, encode_tasks
from metareplay.errors import DataError
from metareplay.limits import GB, refuse_beyond

NAMES = "x and y (also x_train and y_train), and optionally task, x_test, y_test, task_test"


def read_array(path: Path) -> np.ndarray:
    """The array of a .npy file, or x of a .npz file."""
    arrays = _load(path)
    array = arrays.get("x", arrays.get("x_test", arrays.get("x_train")))
    if array is None:
        raise DataError(f"{path} holds no array named x, only {', '.join(arrays) or 'nothing'}")
    return array


def read_targets(path: Path) -> np.ndarray:
    """y of a .npz file."""
    arrays = _load(path)
    targets = arrays.get("y", arrays.get("y_test", arrays.get("y_train")))
    if targets is None:
        raise DataError(f"{path} holds no array named y, only {', '.join(arrays)}; there are no labels to compare with")
    return targets


def read_arrays(path: Path, test_path: Path | None) -> Examples:
    """Examples of a .npz file."""
    if path.suffix.lower() != ".npz":
        raise DataError(f"{path} is one array without labels; save both with numpy.savez: {NAMES}")
    arrays = _load(path)
    train = {name: arrays[key] for name in ("x", "y", "task") for key in (name, f"{name}_train") if key in arrays}
    test = {name: arrays[f"{name}_test"] for name in ("x", "y", "task") if f"{name}_test" in arrays}
    where = test_path or path
    if test_path is not None:
        test_arrays = _load(test_path)
        test = {
            name: test_arrays[key]
            for name in ("x", "y", "task")
            for key in (name, f"{name}_test")
            if key in test_arrays
        }
    _check(path, train, "x and y")
    places = [Place(f"{path}, row ", range(len(train["x"])))]
    marks = None
    if test:
        _check(where, test, "x_test and y_test")
        if set(train) != set(test):
            raise DataError(
                f"{where}: training and test set have different arrays; both need x and y, and both or neither task"
            )
        _check_match(where, train, test)
        marks = torch.arange(len(train["x"]) + len(test["x"])) >= len(train["x"])
        places.append(Place(f"{where}, test row ", range(len(test["x"]))))
        train = {name: np.concatenate([train[name], test[name]]) for name in train}
    return _examples(path, train, tuple(places), marks)


def _examples(path: Path, arrays: Mapping[str, np.ndarray], places: tuple[Place, ...], test: Tensor | None) -> Examples:
    y, labels = encode_labels(arrays["y"], "label", places)
    task, tasks = (None, ()) if "task" not in arrays else encode_tasks(_task_names(arrays["task"], path), places)
    return Examples(as_inputs(arrays["x"], path), y, labels, places, task, tasks, test, {"kind": "arrays"})


def _task_names(values: np.ndarray, path: Path) -> list[str]:
    if values.ndim != 1 or values.dtype.kind not in "iubU":
        raise DataError(
            f"{path}: task has values of type {values.dtype} and shape {values.shape}; "
            "give one string or integer per example"
        )
    return [str(value) for value in values.tolist()]


def as_inputs(x: np.ndarray, path: Path) -> Tensor:
    """Inputs (N, ...) as float32; uint8 images as (N, C, H, W) pixels."""
    if x.dtype.kind not in "fiub":
        raise DataError(f"{path}: x has values of type {x.dtype}; give numbers")
    if x.ndim < 2:
        raise DataError(f"{path}: x has shape {x.shape}; give one row per example, (N, 1) for one feature")
    if x.dtype == np.uint8 and x.ndim == 3:
        return torch.from_numpy(x.copy()).unsqueeze(1)  # (N, H, W) -> (N, 1, H, W)
    if x.dtype == np.uint8 and x.ndim == 4:
        last = x.shape[3] in (1, 3) and x.shape[1] not in (1, 3)
        channels_first = x.transpose(0, 3, 1, 2) if last else x  # (N, H, W, C) -> (N, C, H, W)
        return torch.from_numpy(np.ascontiguousarray(channels_first))
    with np.errstate(over="ignore"):  # named below
        inputs = torch.from_numpy(x.astype(np.float32))
    if (fault := fault_in(inputs, x)) is not None:
        raise DataError(f"{path}: x has {fault}; clean the data first")
    return inputs


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as file:  # numpy does not close a broken archive
            _check_claims(path, file)
            content = np.load(file, allow_pickle=False)
            if isinstance(content, np.ndarray) != (path.suffix.lower() == ".npy"):
                raise DataError(f"{path} has the wrong extension; .npy is one array, .npz an archive with the array x")
            arrays = (
                {"x": content}
                if isinstance(content, np.ndarray)
                else {name.lower(): content[name] for name in content.files}
            )
            if alone := [name for name, array in arrays.items() if array.ndim == 0]:
                raise DataError(
                    f"{path}: {alone[0]} is a single value; an array with one row for each example is needed"
                )
            return arrays
    except (DataError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except Exception as error:  # damaged headers and archives make the libraries raise almost anything
        objects = "allow_pickle" in str(error)
        reason = (
            "it holds pickled objects, which can run code; save arrays of numbers or fixed-length strings"
            if objects
            else str(error)
        )
        raise DataError(f"{path} cannot be read as numbers: {reason}") from error


def _check_claims(path: Path, file: BinaryIO) -> None:
    """Refuse arrays that claim more than their file holds, or than there is memory for; nothing is unpacked yet."""
    if path.suffix.lower() == ".npz":
        with ZipFile(file) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            whole = sum(member.file_size for member in members)
            refuse_beyond("memory_gb", whole / GB, f"{path} claims arrays of {whole:,} bytes once unpacked, in GB")
            for member in members:
                with archive.open(member) as part:
                    _check_header(f"{path}: {member.filename.removesuffix('.npy')}", part, member.file_size)
    else:
        _check_header(str(path), file, path.stat().st_size)
    file.seek(0)


def _check_header(name: str, file: IO[bytes], size: int) -> None:
    """Compare what the header of an array claims with the bytes that there are."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(file)
    claimed = min(max(kind.itemsize * prod(shape), *shape, 0), 2**200)  # fits a float
    refuse_beyond("memory_gb", claimed / GB, f"{name} claims the shape {shape}, in GB")
    if not kind.hasobject and kind.itemsize * prod(shape) > size:
        raise DataError(f"{name} claims the shape {shape}, but has only {size:,} bytes; it is truncated or damaged")


def _check(path: Path, arrays: Mapping[str, np.ndarray], wanted: str) -> None:
    if "x" not in arrays or "y" not in arrays:
        raise DataError(f"{path} has no {wanted}; the arrays must be called {NAMES}")
    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{length} in {name}" for name, length in lengths.items())
        raise DataError(f"{path}: the arrays have different numbers of rows ({counts}); they need one row per example")
    if lengths["x"] == 0:
        raise DataError(f"{path} has no rows ({wanted}); give at least one example")


def _check_match(path: Path, train: Mapping[str, np.ndarray], test: Mapping[str, np.ndarray]) -> None:
    if train["x"].shape[1:] != test["x"].shape[1:] or (train["x"].dtype == np.uint8) != (test["x"].dtype == np.uint8):
        raise DataError(
            f"{path}: training inputs have shape {train['x'].shape[1:]} ({train['x'].dtype}), "
            f"test inputs {test['x'].shape[1:]} ({test['x'].dtype}); they must match"
        )
    if train["y"].shape[1:] != test["y"].shape[1:] or (train["y"].dtype.kind in "US") != (test["y"].dtype.kind in "US"):
        raise DataError(
            f"{path}: training labels ({train['y'].dtype}) and test labels ({test['y'].dtype}) are of different kinds"
        )
