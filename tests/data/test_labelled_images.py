from dataclasses import replace

import pytest
import torch

from metareplay.data.base import LabelledImages
from metareplay.errors import DataError


def _images(**changes: torch.Tensor) -> LabelledImages:
    x, y = torch.arange(24, dtype=torch.uint8).reshape(6, 1, 2, 2), torch.arange(6)
    return replace(LabelledImages(x, y, x[:2], y[:2]), **changes)  # type: ignore[arg-type]  # runs the checks again


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_x": torch.zeros(6, 1, 2, 2)}, "training images must be uint8"),
        ({"test_x": torch.zeros(2, 2, 2, dtype=torch.uint8)}, "test images must be uint8"),
        ({"train_y": torch.arange(5)}, "training labels must be 6 int64"),
        ({"test_y": torch.zeros(2)}, "test labels must be 2 int64"),
        ({"test_x": torch.zeros(2, 1, 3, 2, dtype=torch.uint8)}, "but test images"),
    ],
)
def test_wrong_types_and_shapes_are_refused(changes: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(DataError, match=message):
        _images(**changes)


def test_checksums_tell_splits_pixels_labels_and_shapes_apart() -> None:
    plain = _images()
    assert plain.checksums() == _images().checksums()
    pixel = plain.train_x.clone()
    pixel[5, 0, 1, 1] += 1
    for changed in (_images(train_x=pixel), _images(train_y=plain.train_y.flip(0))):
        assert changed.checksums()["train"] != plain.checksums()["train"]
        assert changed.checksums()["test"] == plain.checksums()["test"]
    wide = LabelledImages(
        plain.train_x.reshape(6, 1, 1, 4), plain.train_y, plain.test_x.reshape(2, 1, 1, 4), plain.test_y
    )
    assert wide.checksums()["train"] != plain.checksums()["train"]


def test_checksums_do_not_depend_on_the_memory_layout() -> None:
    plain = _images()
    strided = plain.train_x.transpose(2, 3).contiguous().transpose(2, 3)
    assert not strided.is_contiguous()
    assert _images(train_x=strided).checksums() == plain.checksums()
