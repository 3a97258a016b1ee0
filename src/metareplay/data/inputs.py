"""Inputs for a stored model, from files like those of its data: labels are not needed, and ignored unless asked for."""

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metareplay.data import reading
from metareplay.data.cells import TextFormat
from metareplay.data.columns import LABEL_NAMES, Table
from metareplay.data.encoding import Encoded, encode_columns, filled
from metareplay.data.labels import (
    ONLY_INPUTS,
    Labels,
    Request,
    labels_of_arrays,
    labels_of_folders,
    labels_of_table,
    tasks_of_table,
)
from metareplay.data.readers.arrays import as_inputs, read_array
from metareplay.data.readers.cifar import cifar_files, read_cifar, refuse_pickled
from metareplay.data.readers.csv_pieces import encoding_found, read_csv_in_pieces
from metareplay.data.readers.csv_tables import CSV_SUFFIXES, csv_table, separator
from metareplay.data.readers.folders import image_files
from metareplay.data.readers.idx import idx_files, read_idx
from metareplay.data.readers.images import IMAGE_SUFFIXES, read_pixels
from metareplay.data.reading import TABLE_SUFFIXES, read_table
from metareplay.errors import ConfigError, DataError

STDIN = "-"
FILL_IN = (
    "fill it in, or leave the row out. A model that is trained with --set data.missing=fill fills in missing values "
    "itself, also when predicting; this one was not"
)
"""What helps with a missing value when predicting, where no row is dropped."""


@dataclass(frozen=True)
class Inputs:
    """Inputs (N, ...), and what their file says besides."""

    x: np.ndarray
    files: Sequence[str] | None = None
    """The name of each input, where each is a file."""
    kept: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Columns that were asked for, as they are in the file."""
    labels: Labels | None = None
    """What the file says is right, if it was asked for."""
    tasks: Labels | None = None
    """The task that the file says each input belongs to, if labels were asked for."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_inputs(path: Path, known: Mapping[str, Any], shape: tuple[int, ...], request: Request = ONLY_INPUTS) -> Inputs:
    """Inputs in the model's shape; flat rows are reshaped. ``known`` is what the model stored about its data files.

    The path ``-`` stands for a table on standard input.
    """
    if str(path) == STDIN:
        inputs = text_inputs(sys.stdin.buffer.read(), "standard input", known, request)
    elif not path.exists():
        raise DataError(f"{path} does not exist")
    elif not (path.is_file() or path.is_dir()):
        raise DataError(f"{path} is a pipe or a device; pass a file, a folder, or - for CSV on standard input")
    elif path.suffix.lower() in (".npy", ".npz"):
        inputs = _arrays(path, known, request)
    elif path.suffix.lower() in CSV_SUFFIXES and _in_pieces(path, known, request):
        inputs = _large_table(path, known, request)
    elif path.suffix.lower() in CSV_SUFFIXES:
        inputs = text_inputs(_content(path), str(path), known, request)
    elif path.suffix.lower() in TABLE_SUFFIXES:
        inputs = table_inputs(read_table(path, keep=request.keep), known, request)
    else:
        inputs = _images(path, known, request)
    return replace(inputs, x=in_shape(inputs.x, shape))


def in_shape(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Flat rows (N, D) in the shape of the model's inputs, if they have as many numbers; else as they are."""
    return x.reshape(len(x), *shape) if x.ndim == 2 and x.shape[1] == int(np.prod(shape)) else x


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _arrays(path: Path, known: Mapping[str, Any], request: Request) -> Inputs:
    _no_columns(path, request)
    x = read_array(path)
    labels = labels_of_arrays(path, len(x)) if request.labels else None
    return Inputs(as_inputs(x, path).numpy() if known and x.dtype == np.uint8 else x, labels=labels)


def text_inputs(content: bytes, name: str, known: Mapping[str, Any], request: Request = ONLY_INPUTS) -> Inputs:
    """A table as text: columns by name, or numbers in order if the model knows no names."""
    if known.get("kind") != "table" and not request.keep and not request.labels:
        return Inputs(read_numbers(content, name))
    form = TextFormat(known.get("decimal"), None, known.get("encoding") if _not_utf8(content) else None)
    return table_inputs(csv_table(content, name, form, request.keep), known, request)


def _in_pieces(path: Path, known: Mapping[str, Any], request: Request) -> bool:
    """Whether a CSV file is too large to be read at once; columns that are copied are in memory anyway."""
    try:
        return known.get("kind") == "table" and not request.keep and path.stat().st_size >= reading.LARGE
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _large_table(path: Path, known: Mapping[str, Any], request: Request) -> Inputs:
    encoding = known.get("encoding") if encoding_found(path) != "utf-8-sig" else None
    used = {entry["name"] for entry in known["columns"]} | {request.label, known.get("label"), known.get("task")}
    table = read_csv_in_pieces(path, TextFormat(known.get("decimal"), None, encoding), used=used | {*LABEL_NAMES})
    labels = [request.label, known.get("label"), known.get("task"), *LABEL_NAMES] if request.labels else []
    return table_inputs(table.whole(labels), known, request)


def table_inputs(table: Table, known: Mapping[str, Any], request: Request = ONLY_INPUTS) -> Inputs:
    """The inputs in a table's columns, and what else is asked for."""
    for name in request.keep:
        table.column(name, "--keep names it")
    labels = labels_of_table(table, known, request) if request.labels else None
    tasks = tasks_of_table(table, known) if request.labels else None
    apart = {*request.keep, None if labels is None else labels.source}
    x, warnings = _encoded(table, [name for name in table.columns if name not in apart], known)
    return Inputs(x, kept=table.kept, labels=labels, tasks=tasks, notes=table.notes, warnings=warnings)


def _encoded(table: Table, names: Sequence[str], known: Mapping[str, Any]) -> Encoded:
    """The columns that the model needs, or all of these if it knows no names."""
    if known.get("kind") == "table":
        x, warnings = encode_columns(table, known["columns"], gaps="fill" in known, advice=FILL_IN)
        return Encoded(filled(x, known), warnings)
    images = [name for name in names if table.columns[name].kind == "image"]
    if len(images) == 1 and known.get("kind") == "images":
        return Encoded(pixel_inputs(table.columns[images[0]].values.tolist(), table.where, known), ())
    return encode_columns(table, [{"name": name} for name in names], gaps=False, advice=FILL_IN)


def _not_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return True
    return False


def _no_columns(path: Path, request: Request) -> None:
    if request.keep:
        raise ConfigError(f"--keep names a column, but {path} is not a table and has no columns; remove it")
    if request.label is not None:
        raise ConfigError(f"--label names a column, but {path} is not a table and has no columns; remove it")


def _images(path: Path, known: Mapping[str, Any], request: Request) -> Inputs:
    """A folder of images, one image, an IDX file, or the test images of CIFAR's binary files."""
    refuse_pickled(path)
    _no_columns(path, request)
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
    pixels = pixel_inputs(files, lambda index: str(files[index]), known)
    return Inputs(pixels, names, labels=labels_of_folders(files) if request.labels else None)


def pixel_inputs(images: Any, name: Any, known: Mapping[str, Any]) -> np.ndarray:
    """Pixels as in the training data: the same colour mode, and resized only if those were."""
    height, width = (int(side) for side in known["size"])
    pixels, _ = read_pixels(images, name, (height, width) if known.get("resize") else None, str(known["mode"]))
    if tuple(pixels.shape[2:]) != (height, width):
        raise DataError(
            f"{name(0)} has {pixels.shape[2]} x {pixels.shape[3]} pixels, "
            f"but the model was trained on images of {height} x {width}"
        )
    return np.asarray(pixels.to(torch.float32))


def read_numbers(content: bytes, name: str) -> np.ndarray:
    """A CSV file of numbers only, with or without a header."""
    try:
        text = content.decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator(text)) if row]
        if rows and not any(_is_number(cell) for cell in rows[0]):
            rows = rows[1:]  # a header
        for number, row in enumerate(rows, start=1):
            if wrong := [cell for cell in row if not _is_number(cell)]:
                raise DataError(
                    f"{name}: the cell {wrong[0]!r} in row {number} is not a number; separate numbers with commas"
                )
        return np.array([[float(cell) for cell in row] for row in rows], dtype=np.float64)
    except (ValueError, csv.Error) as error:
        raise DataError(f"{name} cannot be read as numbers: {error}") from error


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
