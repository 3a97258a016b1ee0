"""What the readers return: labelled images with a training and a test set, or a user's own examples."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from metareplay.errors import DataError


@dataclass(frozen=True)
class LabelledImages:
    """Images (uint8, shape (N, C, H, W)) and labels (int64, shape (N,)) of a training and a test set."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    max_value: int = 255
    """The pixel value of full brightness: dividing by it scales inputs to [0, 1]."""

    def __post_init__(self) -> None:
        for part, x, y in (("training", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            if x.dtype != torch.uint8 or x.ndim != 4:
                raise DataError(
                    f"{part} images must be uint8 of shape (N, C, H, W), got {x.dtype} of shape {tuple(x.shape)}"
                )
            if y.dtype != torch.int64 or y.shape != x.shape[:1]:
                raise DataError(
                    f"{part} labels must be {len(x)} int64 values, one per image, "
                    f"got {y.dtype} of shape {tuple(y.shape)}"
                )
        if self.train_x.shape[1:] != self.test_x.shape[1:]:
            train, test = tuple(self.train_x.shape[1:]), tuple(self.test_x.shape[1:])
            raise DataError(f"training images have shape {train} but test images have shape {test}")

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Shape of one image: (C, H, W)."""
        return tuple(self.train_x.shape[1:])

    def checksums(self) -> dict[str, str]:
        """SHA-256 of each split's shape, pixels and labels, however the images were compressed and stored."""
        return {"train": _checksum(self.train_x, self.train_y), "test": _checksum(self.test_x, self.test_y)}


def _checksum(x: Tensor, y: Tensor) -> str:
    digest = hashlib.sha256(str(tuple(x.shape)).encode())
    digest.update(x.contiguous().numpy().data)
    digest.update(y.contiguous().numpy().astype("<i8").data)  # the same bytes on every machine
    return digest.hexdigest()


FILLING = "filling"
"""Among the facts on inputs: missing values are filled in, now or later; the means take its place."""
Label = int | float | str
"""A user's own class label, as a plain value (booleans count as int)."""


class Place(NamedTuple):
    """Where rows come from, for messages: ``flowers.csv, line `` and 7, or a folder and a file name."""

    text: str
    names: Sequence[int | str]


@dataclass(frozen=True)
class Examples:
    """A user's examples as stored in their files; all that is known of classes and tasks is what the files say."""

    x: Tensor
    """Inputs (N, ...): uint8 pixels or float32; NaN only for missing values that will be filled in."""
    y: Tensor
    """Indices into ``labels`` (N,), int64; real targets (N, D), float64, if there are no labels."""
    labels: tuple[Label, ...]
    places: tuple[Place, ...]
    task: Tensor | None = None
    """Indices into ``tasks`` (N,), int64, if the files name the tasks."""
    tasks: tuple[str, ...] = ()
    test: Tensor | None = None
    """Which examples are for testing (N,), bool, if the files say so."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """How a row or an image becomes an input, as plain values, so that a stored model reads new files the same way."""
    notes: tuple[str, ...] = ()
    """What a user should know about how the data were read."""

    def where(self, index: int) -> str:
        """The file and row of an example."""
        return named_row(self.places, index)


def named_row(places: Sequence[Place], index: int) -> str:
    """The file and row of one of all rows."""
    for text, names in places:
        if index < len(names):
            return f"{text}{names[index]}"
        index -= len(names)
    return f"row {index}"


EXACT = 2**53
"""Integers below this are exact in float64."""


def encode_labels(values: np.ndarray, what: str, places: Sequence[Place]) -> tuple[Tensor, tuple[Label, ...]]:
    """Labels as indices into the sorted labels; non-integer numbers stay real targets (N, 1), without labels."""
    if values.ndim != 1:
        return _real(values, what, places), ()
    if values.dtype.kind in "OUS":
        texts = [None if value is None else str(value) for value in values.tolist()]
        if None in texts:
            raise DataError(
                f"{named_row(places, texts.index(None))} has no {what}; every example needs one: "
                "fill it in, or remove the row"
            )
        known = sorted({text for text in texts if text is not None})
        if all(_is_plain_integer(text) for text in known):
            known.sort(key=int)
        position = {text: index for index, text in enumerate(known)}
        return torch.tensor([position[text] for text in texts if text is not None]), tuple(known)
    if values.dtype.kind == "b":
        distinct, index = np.unique(values, return_inverse=True)
        return torch.from_numpy(index.astype(np.int64)), tuple(bool(value) for value in distinct)
    real = _real(values[:, None], what, places)  # (N,) -> (N, 1)
    if bool((real != real.round()).any()):
        return real, ()
    if bool((real.abs() >= EXACT).any()):
        row = int((real[:, 0].abs() >= EXACT).nonzero()[0])
        raise DataError(
            f"{named_row(places, row)}: the {what} is an integer beyond 2^53, where different integers become equal; "
            "if it names a class, write it as text (id-123...), if it is a measurement, use a larger unit"
        )
    unique, position_of = torch.unique(real[:, 0], return_inverse=True)
    return position_of, tuple(int(value) for value in unique.tolist())


def encode_tasks(names: Sequence[str | None], places: Sequence[Place]) -> tuple[Tensor, tuple[str, ...]]:
    """The task of each row as an index into the tasks, which are in order of first appearance."""
    if None in names:
        raise DataError(
            f"{named_row(places, list(names).index(None))} has no task; every example needs one: "
            "fill it in, or remove the row"
        )
    position: dict[str | None, int] = {}
    index = [position.setdefault(name, len(position)) for name in names]
    return torch.tensor(index), tuple(str(name) for name in position)


def _real(values: np.ndarray, what: str, places: Sequence[Place]) -> Tensor:
    if values.dtype.kind not in "fiu":
        raise DataError(f"the {what} has values of type {values.dtype}; give text or numbers")
    real = torch.from_numpy(values.astype(np.float64))
    if not bool(torch.isfinite(real).all()):
        row = int((~torch.isfinite(real)).any(1).nonzero()[0])
        raise DataError(
            f"{named_row(places, row)} has no {what}, or an infinite one; every example needs one: "
            "fill it in, or remove the row"
        )
    return real


def _is_plain_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and str(int(text)) == text
