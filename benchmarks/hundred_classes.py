"""A stand-in for CIFAR-100 where it is not at hand: a hundred classes made of the images of CIFAR-10.

python -m benchmarks.hundred_classes FOLDER [--data-dir FOLDER]

Every class of CIFAR-10 is cut into ten groups of equally many images that are alike in their coarse colours; group g of
class c is class 10 g + c, so that each task of split-cifar-100 has ten kinds of things in similar colours. The files
have CIFAR-100's sizes and its binary form, so `metareplay run split-cifar-100 --data-dir FOLDER` reads them. Figures on
them say how much a hundred classes cost and what is forgotten; they are not figures of CIFAR-100.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from metareplay.data.readers.cifar import CIFAR100
from metareplay.data.sources import load_cifar10
from metareplay.files import write_atomically

CELLS = 4
GROUPS = 10
ROUNDS = 20


def coarse(images: Tensor) -> Tensor:
    """Mean colours of sixteen parts: (N, 3, 32, 32) -> (N, 48)."""
    return F.adaptive_avg_pool2d(images.float() / 255, CELLS).flatten(1)


def in_equal_groups(points: Tensor, centres: Tensor) -> Tensor:
    """The nearest centre that has room, the clearest cases first: (N, D), (G, D) -> (N,), N / G of each."""
    room = torch.full((len(centres),), len(points) // len(centres))
    distances = torch.cdist(points, centres)  # (N, G)
    found = torch.empty(len(points), dtype=torch.long)
    for row in (distances.min(1).values - distances.mean(1)).argsort(stable=True).tolist():
        group = int(torch.where(room > 0, distances[row], torch.inf).argmin())
        found[row], room[group] = group, room[group] - 1
    return found


def centres_of(points: Tensor, generator: torch.Generator) -> Tensor:
    """Of groups of equal size, by alternating [MacQueen 1967]: (N, D) -> (G, D)."""
    centres = points[torch.randperm(len(points), generator=generator)[:GROUPS]]
    for _ in range(ROUNDS):
        groups = in_equal_groups(points, centres)
        centres = torch.stack([points[groups == group].mean(0) for group in range(GROUPS)])
    return centres[centres.mean(1).argsort()]  # dark groups first, in every class


def hundred(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], seed: int = 0) -> tuple[Tensor, Tensor]:
    """Labels of both parts, of ten classes each (N, 3, 32, 32), (N,): groups are made by the training images alone."""
    generator = torch.Generator().manual_seed(seed)
    labels = [torch.empty_like(part[1]) for part in (train, test)]
    for kind in range(10):
        centres = centres_of(coarse(train[0][train[1] == kind]), generator)
        for part, (images, kinds) in zip(labels, (train, test), strict=True):
            part[kinds == kind] = 10 * in_equal_groups(coarse(images[kinds == kind]), centres) + kind
    return labels[0], labels[1]


def write_records(path: Path, images: Tensor, labels: Tensor) -> None:
    """Two bytes of labels, the coarse one unused, and the pixels of each image."""
    bytes_of_labels = np.stack([np.zeros(len(labels)), labels.numpy()], 1).astype(np.uint8)  # (N, 2)
    pixels = images.flatten(1).to(torch.uint8).numpy()  # (N, 3072)
    write_atomically(path, np.concatenate([bytes_of_labels, pixels], 1).tobytes())


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data-dir", type=Path, help="folder of CIFAR-10")
    asked = parser.parse_args()
    images = load_cifar10(asked.data_dir)
    train, test = (images.train_x, images.train_y), (images.test_x, images.test_y)
    place = asked.folder / "cifar100" / CIFAR100.unpacked
    place.mkdir(parents=True, exist_ok=True)
    parts = zip((*CIFAR100.train, *CIFAR100.test), (train, test), hundred(train, test), strict=True)
    for name, (pixels, _), labels in parts:
        write_records(place / name, pixels, labels)
    print(f"written: {place}")


if __name__ == "__main__":
    main()
