"""What every reader of labelled images returns: all examples in memory, as small integers."""

import hashlib
from dataclasses import dataclass

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
    """The pixel value that stands for full brightness: dividing by it brings inputs into [0, 1]."""

    def __post_init__(self) -> None:
        for part, x, y in (("training", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            if x.dtype != torch.uint8 or x.ndim != 4:
                raise DataError(f"{part} images must be uint8 of shape (N, C, H, W), got {x.dtype} of shape {tuple(x.shape)}")
            if y.dtype != torch.int64 or y.shape != x.shape[:1]:
                raise DataError(f"{part} labels must be {len(x)} int64 values, one per image, got {y.dtype} of shape {tuple(y.shape)}")
        if self.train_x.shape[1:] != self.test_x.shape[1:]:
            raise DataError(f"training images have shape {tuple(self.train_x.shape[1:])} but test images {tuple(self.test_x.shape[1:])}")

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Shape of one image: (C, H, W)."""
        return tuple(self.train_x.shape[1:])

    def checksums(self) -> dict[str, str]:
        """SHA-256 of each split's shape, pixels and labels; the same however the images were compressed and stored."""
        return {"train": _checksum(self.train_x, self.train_y), "test": _checksum(self.test_x, self.test_y)}


def _checksum(x: Tensor, y: Tensor) -> str:
    digest = hashlib.sha256(str(tuple(x.shape)).encode())
    digest.update(x.contiguous().numpy().data)
    digest.update(y.contiguous().numpy().astype("<i8").data)  # the same bytes on every machine
    return digest.hexdigest()
