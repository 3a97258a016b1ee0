"""The body of a request as inputs, by the model's own encoding of rows and images."""

import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from metareplay.arrays import to_inputs
from metareplay.data.cells import TextFormat
from metareplay.data.inputs import Inputs, in_shape, pixel_inputs, table_inputs, text_inputs
from metareplay.data.records import records_table
from metareplay.errors import DataError
from metareplay.estimators.loading import AnyEstimator
from metareplay.serve.refusals import RequestError
from metareplay.serve.settings import ServeSettings
from metareplay.texts import read_json

NAME = "the request"
FROM_ZERO_TO_ONE = ("split-digits", "split-mnist")
"""Benchmarks whose inputs are images as they are, with pixels from 0 to 1."""
SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
"""How PNG and JPEG files begin; no other format is decoded."""


@dataclass(frozen=True)
class Asked:
    """Inputs (N, ...) in the shape that the model needs, and what the client should know about them."""

    x: Tensor
    warnings: tuple[str, ...] = ()
    files: Sequence[str] | None = None


class ImageForm(NamedTuple):
    """What images must be for a model."""

    height: int
    width: int
    mode: str
    """Pillow's word: L (grey) or RGB."""
    brightest: float
    """The value of full brightness."""
    resize: bool
    """Whether other sizes are resized, as those of the training data were."""


def image_form(estimator: AnyEstimator, settings: ServeSettings) -> ImageForm | None:
    """What images must be for this model; None if its inputs are not images."""
    known, shape = estimator.inputs, estimator.input_shape
    if known.get("kind") == "images":
        height, width = (int(side) for side in known["size"])
        return ImageForm(height, width, str(known["mode"]), 255.0, bool(known.get("resize")))
    if known or len(shape) != 3 or shape[0] not in (1, 3):
        return None
    brightest = settings.pixel_max
    if brightest is None and estimator.config.benchmark in FROM_ZERO_TO_ONE:
        brightest = 1.0
    return (
        None if brightest is None else ImageForm(shape[1], shape[2], "L" if shape[0] == 1 else "RGB", brightest, False)
    )


def json_body(content: bytes) -> Any:
    """What a JSON text says."""
    try:
        return read_json(content)
    except ValueError as error:
        raise RequestError(
            400, f"the body is not JSON ({error}); send e.g. {{'rows': [...]}}".replace("'", '"')
        ) from error


def row_inputs(rows: Any, estimator: AnyEstimator, settings: ServeSettings) -> Asked:
    """Rows as JSON gives them: objects with the names of columns, or arrays."""
    if not isinstance(rows, list) or not rows:
        raise DataError('"rows" must be a list with at least one row: an object with the names of columns, or an array')
    check_count(len(rows), settings)
    named = [isinstance(row, Mapping) for row in rows]
    if any(named) and not all(named):
        raise DataError(f"row {named.index(False)} is not an object like the others; give all rows in the same form")
    columns = estimator.inputs.get("columns", ()) if estimator.inputs.get("kind") == "table" else ()
    if not named[0] and columns and all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        rows, named = [dict(zip((entry["name"] for entry in columns), row, strict=True)) for row in rows], [True]
    try:
        if named[0]:
            table = records_table(rows, NAME, TextFormat(estimator.inputs.get("decimal")))
            return _asked(table_inputs(table, estimator.inputs), estimator)
        return _asked(Inputs(_numbers(rows, columns, estimator.input_shape)), estimator)
    except (OverflowError, RecursionError) as error:
        raise DataError(f"the rows hold a number that is too large, or too many levels of lists ({error})") from error


def csv_inputs(content: bytes, estimator: AnyEstimator, settings: ServeSettings) -> Asked:
    """Rows of a CSV text: columns by name, or numbers in order for a model that knows no names."""
    check_count(content.count(b"\n") - 1, settings)
    asked = _asked(text_inputs(content, NAME, estimator.inputs), estimator)
    check_count(len(asked.x), settings)
    return asked


def image_inputs(images: Sequence[tuple[str, bytes]], estimator: AnyEstimator, settings: ServeSettings) -> Asked:
    """PNG or JPEG files."""
    check_count(len(images), settings)
    form = image_form(estimator, settings)
    if form is None:
        raise RequestError(415, _no_images(estimator))
    for name, content in images:
        check_image(name, content, settings)
    description = {"size": (form.height, form.width), "mode": form.mode, "resize": form.resize}
    names = [name for name, _ in images]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pillow, about odd metadata
        pixels = pixel_inputs([content for _, content in images], lambda index: names[index], description)
    scaled = pixels if form.brightest == 255.0 else pixels * np.float32(form.brightest / 255.0)
    return _asked(Inputs(scaled, names), estimator)


def _asked(inputs: Inputs, estimator: AnyEstimator) -> Asked:
    shape = estimator.input_shape
    return Asked(to_inputs(in_shape(inputs.x, shape), shape), (*inputs.notes, *inputs.warnings), inputs.files)


def _numbers(rows: list[Any], columns: Sequence[Mapping[str, Any]], shape: tuple[int, ...]) -> np.ndarray:
    names = ", ".join(repr(entry["name"]) for entry in columns[:20])
    expected = f"the columns {names}, in this order" if columns else f"numbers of shape {list(shape)}"
    try:
        x = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"the rows must all be arrays of {expected} ({error})") from error
    if x.ndim < 2:
        raise DataError("each row must be an array or an object, even if it has one number only: [[1.5], [2.0]]")
    if columns and x.shape[1:] != shape:
        raise DataError(f"the rows have the shape {list(x.shape[1:])}, but must be arrays of {expected}")
    return x


def check_count(count: int, settings: ServeSettings) -> None:
    """Refuse more inputs than a request may have."""
    if count > settings.max_rows:
        raise RequestError(
            413, f"the request has {count} inputs, but at most {settings.max_rows} are allowed (--max-rows); send fewer"
        )


def check_image(name: str, content: bytes, settings: ServeSettings) -> None:
    """Refuse other formats, and images whose header announces too many pixels, before anything is decoded."""
    from PIL import Image

    if not content.startswith(SIGNATURES):
        raise RequestError(415, f"{name} is neither a PNG nor a JPEG image; convert it to one of these")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as opened:
                width, height = opened.size
    except Image.DecompressionBombError:
        width = height = settings.max_pixels
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise DataError(f"{name} cannot be read as an image; it is truncated or corrupt") from error
    if width * height > settings.max_pixels:
        raise RequestError(
            413, f"{name} has more than {settings.max_pixels} pixels (--max-pixels); send a smaller version of it"
        )


def _no_images(estimator: AnyEstimator) -> str:
    if estimator.inputs.get("kind") == "table":
        names = ", ".join(repr(entry["name"]) for entry in estimator.inputs["columns"][:20])
        return f"this model's inputs are not images but the columns {names}; send rows as JSON or CSV"
    return (
        f"this model learned from arrays of shape {estimator.input_shape}, and how they hold pixels is not known; "
        "send rows, or serve it with --pixel-max if they are images"
    )
