"""The stand-in for CIFAR-100: groups of equal size, made by the training images alone, in the files' binary form."""

from pathlib import Path

import numpy as np
import torch

from benchmarks.hundred_classes import hundred, in_equal_groups, write_records


def images_of(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (10 * count, 3, 32, 32), generator=generator), torch.arange(10).repeat(count)


def test_groups_are_equally_large_and_near() -> None:
    points = torch.tensor([[0.0], [0.1], [0.2], [5.0]])
    assert in_equal_groups(points, torch.tensor([[0.0], [5.0]])).tolist() == [0, 0, 1, 1]


def test_each_class_has_as_many_images_and_keeps_its_kind() -> None:
    train, test = images_of(20, 0), images_of(10, 1)
    labels, test_labels = hundred(train, test)
    assert torch.equal(labels % 10, train[1])
    assert torch.equal(test_labels % 10, test[1])
    assert labels.bincount().tolist() == [2] * 100
    assert test_labels.bincount().tolist() == [1] * 100
    assert torch.equal(hundred(train, images_of(10, 2))[0], labels)  # whatever is tested


def test_records_have_two_bytes_of_labels(tmp_path: Path) -> None:
    images, labels = images_of(1, 0)
    write_records(tmp_path / "train.bin", images, labels + 90)
    records = np.fromfile(tmp_path / "train.bin", np.uint8).reshape(10, 2 + 3072)
    assert records[:, 0].tolist() == [0] * 10
    assert records[:, 1].tolist() == list(range(90, 100))
    assert np.array_equal(records[:, 2:], images.flatten(1).numpy())
