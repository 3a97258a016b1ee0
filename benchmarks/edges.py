"""What edges and colours of images add to task inference, on streams of training images for development.

python -m benchmarks.edges [--seeds 1] [--out FOLDER] [STREAM ...]

Every stream is learned with and without them (``statistics.edges``): the same networks, default settings. Tested on
other training images of MNIST and CIFAR-10, which are looked for as ``metareplay run split-mnist`` does. Every stream,
way and seed is one file, and what has been written is not done again.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sklearn import datasets

from benchmarks.data_sets import Array, Examples, made, names, stream
from benchmarks.own_data import ece, together
from benchmarks.own_ways import Record, with_method
from metareplay.data.base import LabelledImages
from metareplay.data.sources import load_cifar10, load_mnist
from metareplay.files import write_atomically

FIRST = 25_000
"""The first training image that is used."""
TEST = 200
"""Images of a class for testing."""


def _images(images: LabelledImages, per_class: int, side: int) -> tuple[Array, Array]:
    """As many training images of every class, and those for testing, averaged down to as many pixels a side."""
    y = images.train_y.numpy()[FIRST:]
    rows = np.concatenate([np.flatnonzero(y == label)[: per_class + TEST] for label in np.unique(y)])
    x = F.adaptive_avg_pool2d(images.train_x[FIRST + torch.tensor(rows)].float(), side)
    return x.numpy(), y[rows]


def _months(x: Array, y: Array, order: str, classes: int = 2) -> list[Examples]:
    groups = np.array([int(label) for label in order]).reshape(-1, classes)
    return [Examples(x[rows], y[rows]) for group in groups for rows in [np.isin(y, group)]]


def _share(per_class: int) -> float:
    return TEST / (TEST + per_class)


@made("CIFAR-10 at 16 x 16 pixels, pairs", "classification", "new classes", _share(400), group="photos")
def _pairs(random: np.random.Generator) -> list[Examples]:
    return _months(*_images(load_cifar10(), 400, 16), "3917482605")


@made("CIFAR-10 at 16 x 16 pixels, threes", "classification", "new classes", _share(400), group="photos")
def _threes(random: np.random.Generator) -> list[Examples]:
    return _months(*_images(load_cifar10(), 400, 16), "482039715", 3)


@made("CIFAR-10 at 16 x 16 pixels, pairs, few images", "classification", "new classes", _share(100), group="photos")
def _few(random: np.random.Generator) -> list[Examples]:
    return _months(*_images(load_cifar10(), 100, 16), "0123456789")


@made("CIFAR-10 at 16 x 16 pixels, pairs, none held out", "classification", "new classes", _share(80), group="photos")
def _fewest(random: np.random.Generator) -> list[Examples]:
    return _months(*_images(load_cifar10(), 80, 16), "5283719406")


@made("CIFAR-10, pairs, another order", "classification", "new classes", _share(400), group="photos")
def _whole(random: np.random.Generator) -> list[Examples]:
    return _months(*_images(load_cifar10(), 400, 32), "3917482605")


@made("MNIST at 14 x 14 pixels, pairs, another order", "classification", "new classes", _share(200), group="photos")
def _small_digits(random: np.random.Generator) -> list[Examples]:
    return _months(*_images(load_mnist(), 200, 14), "1907348625")


@made("MNIST at 14 x 14 pixels, pairs, none held out", "classification", "new classes", _share(80), group="photos")
def _few_digits(random: np.random.Generator) -> list[Examples]:
    return _months(*_images(load_mnist(), 80, 14), "5283719406")


@made("digits of 24 x 24 pixels, pairs", "classification", "new classes", group="photos")
def _digits(random: np.random.Generator) -> list[Examples]:
    digits = datasets.load_digits()
    large = F.interpolate(torch.tensor(digits.images).float().unsqueeze(1), (24, 24), mode="bilinear")  # (N, 1, H, W)
    return _months(large.numpy(), digits.target, "3571902468")


def measured(name: str, seed: int, *, edges: bool, out: Path) -> Record:
    """What a model answers, from its file if there is one."""
    file = out / f"{name.replace(' ', '-')}.{'with' if edges else 'without'}.{seed}.json"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        settings = {"statistics.edges": edges}
        write_atomically(file, json.dumps(with_method(stream(name, seed), seed, **settings), default=float))
    found: Record = json.loads(file.read_text())
    return found


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("streams", nargs="*", metavar="STREAM", help="default: all")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/edges"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print("| development images | label right, without | with | right task, without | with | ECE without | with |")
    print("|---|---|---|---|---|---|---|")
    for name in asked.streams or names(group="photos"):
        ways = [
            together([measured(name, seed, edges=edges, out=asked.out) for seed in range(asked.seeds)])
            for edges in (False, True)
        ]
        shares = [f"{100 * np.mean(found[key]):.1f}" for key in ("inferred right", "right task") for found in ways]
        errors = [f"{ece(found, 'inferred'):.1f}" for found in ways]
        print("| " + " | ".join([name, *shares, *errors]) + " |", flush=True)


if __name__ == "__main__":
    main()
