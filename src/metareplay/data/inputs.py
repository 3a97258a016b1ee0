"""Inputs for a stored model, from files like those of its data: labels are not needed, and ignored if present."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from metareplay.data.columns import Table, encode_columns
from metareplay.data.readers.arrays import as_inputs, read_array
from metareplay.data.readers.cifar import cifar_files, read_cifar, refuse_pickled
from metareplay.data.readers.csv_tables import CSV_SUFFIXES
from metareplay.data.readers.folders import image_files
from metareplay.data.readers.idx import idx_files, read_idx
from metareplay.data.readers.images import IMAGE_SUFFIXES, read_pixels
from metareplay.data.reading import TABLE_SUFFIXES, read_table
from metareplay.errors import DataError


class Inputs(NamedTuple):
    """Inputs (N, ...), and their names where each is a file."""

    x: np.ndarray
    names: list[str] | None = None


def read_inputs(path: Path, known: Mapping[str, Any], shape: tuple[int, ...]) -> Inputs:
    """Inputs in the model's shape; flat rows are reshaped. ``known`` is what the model stored about its data files."""
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if path.suffix.lower() in (".npy", ".npz"):
        x = read_array(path)
        inputs = Inputs(as_inputs(x, path).numpy() if known and x.dtype == np.uint8 else x)
    elif path.suffix.lower() in TABLE_SUFFIXES:
        inputs = _table(path, known)
    else:
        inputs = _images(path, known)
    x = inputs.x
    return inputs._replace(x=x.reshape(len(x), *shape)) if x.ndim == 2 and x.shape[1] == int(np.prod(shape)) else inputs


def _table(path: Path, known: Mapping[str, Any]) -> Inputs:
    if known.get("kind") == "table":
        table = read_table(path)
        x = encode_columns(table, known["columns"], gaps="fill" in known)
        return Inputs(np.where(np.isnan(x), np.array(known["fill"], dtype=np.float32), x) if "fill" in known else x)
    if path.suffix.lower() in CSV_SUFFIXES:
        return Inputs(read_numbers(path))
    table = read_table(path)
    image_columns = [name for name, column in table.columns.items() if column.kind == "image"]
    if len(image_columns) == 1 and known.get("kind") == "images":
        return Inputs(_pixels(table.columns[image_columns[0]].values.tolist(), table.where, known))
    return Inputs(_all_columns(table))


def _all_columns(table: Table) -> np.ndarray:
    return encode_columns(table, [{"name": name} for name in table.columns], gaps=False)


def _images(path: Path, known: Mapping[str, Any]) -> Inputs:
    """A folder of images, one image, an IDX file, or the test images of CIFAR's binary files."""
    refuse_pickled(path)
    if (
        not path.is_dir()
        and path.suffix.lower() not in IMAGE_SUFFIXES
        and "idx" not in path.name
        and cifar_files(path) is None
    ):
        raise DataError(
            f"{path} has an unknown extension; give .npy, .npz (array x), a table ({', '.join(TABLE_SUFFIXES)}), "
            "an image or a folder of images"
        )
    if known.get("kind") != "images":
        raise DataError(
            f"{path} holds images, but the model was not trained on image files; give .npy, .npz or a table"
        )
    if (cifar := cifar_files(path)) is not None:
        return Inputs(read_cifar(*cifar).test[0])
    if path.is_dir() and (pairs := idx_files(path)):
        images = pairs.get(("test", "images"), next(iter(pairs.values())))
        return Inputs(read_idx(images)[:, None])  # (N, H, W) -> (N, 1, H, W)
    if path.is_file() and path.suffix.lower() not in IMAGE_SUFFIXES:
        array = read_idx(path)
        if array.ndim != 3:
            raise DataError(f"{path} holds an array of shape {array.shape}; images have the shape (N, height, width)")
        return Inputs(array[:, None])  # (N, H, W) -> (N, 1, H, W)
    files = image_files(path) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path} holds no images ({', '.join(IMAGE_SUFFIXES[:3])}, ...)")
    names = [str(file.relative_to(path) if path.is_dir() else file.name) for file in files]
    return Inputs(_pixels(files, lambda index: str(files[index]), known), names)


def _pixels(images: Any, name: Any, known: Mapping[str, Any]) -> np.ndarray:
    """Pixels as in the training data: the same colour mode, and resized only if those were."""
    height, width = (int(side) for side in known["size"])
    pixels, _ = read_pixels(images, name, (height, width) if known.get("resize") else None, str(known["mode"]))
    if tuple(pixels.shape[2:]) != (height, width):
        raise DataError(
            f"{name(0)} has {pixels.shape[2]} x {pixels.shape[3]} pixels, "
            f"but the model was trained on images of {height} x {width}"
        )
    return np.asarray(pixels.to(torch.float32))


def read_numbers(path: Path) -> np.ndarray:
    """A CSV file of numbers only, with or without a header."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
        if rows and not any(_is_number(cell) for cell in rows[0]):
            rows = rows[1:]  # a header
        for number, row in enumerate(rows, start=1):
            if wrong := [cell for cell in row if not _is_number(cell)]:
                raise DataError(
                    f"{path}: the cell {wrong[0]!r} in row {number} is not a number; separate numbers with commas"
                )
        return np.array([[float(cell) for cell in row] for row in rows], dtype=np.float32)
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as numbers: {error}") from error


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
