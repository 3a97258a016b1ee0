"""False rejections of tasks of few images, with thresholds from held-out ones alone and from left-out ones as well.

python -m benchmarks.few_held_out [--tasks 8]

Every task is two classes of development images, alone in its model; its thresholds are compared with 400 new images of
each class. Training images of MNIST and CIFAR-10, which are looked for as ``metareplay run split-mnist`` does, and the
digits of scikit-learn. Where nothing is held out, both ways are the same.
"""

import argparse
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from sklearn import datasets

from benchmarks.data_sets import Array
from metareplay import ContinualClassifier
from metareplay.data.base import LabelledImages
from metareplay.data.sources import load_cifar10, load_mnist
from metareplay.inference.statistics import keeper

IMAGES, NEW = 12_000, 400
STATED = 5.0
"""The stated share of false rejections, in percent."""


def _small(images: LabelledImages, side: int) -> tuple[Array, Array]:
    x = F.adaptive_avg_pool2d(images.train_x[:IMAGES].float(), side)
    return x.numpy(), images.train_y[:IMAGES].numpy()


def _digits() -> tuple[Array, Array]:
    digits = datasets.load_digits()
    return digits.images[:, None].astype(np.float32), digits.target


def rejected(x: Array, y: Array, per_class: int, seed: int, *, left_out: bool) -> float:
    """Percent of new images of one task that are called unknown."""
    random = np.random.default_rng(seed)
    of_class = [random.permutation(np.flatnonzero(y == label)) for label in random.permutation(np.unique(y))[:2]]
    used = np.concatenate([rows[:per_class] for rows in of_class])
    new = np.concatenate([rows[per_class : per_class + NEW] for rows in of_class])
    before, keeper.MANY_HELD_OUT = keeper.MANY_HELD_OUT, keeper.MANY_HELD_OUT if left_out else 1
    settings = {"training.iterations": 120, "inference.samples": 3}
    model = ContinualClassifier(network="mlp-50", settings=settings, seed=seed).learn_task(x[used], y[used])
    keeper.MANY_HELD_OUT = before
    known = model.predict_full(x[new], 0).known
    assert known is not None
    return 100 * float(1 - known.mean())


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=8)
    tasks = parser.parse_args().tasks
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    mnist, cifar = _small(load_mnist(), 14), _small(load_cifar10(), 16)
    print("| images | of each class | mean, held out alone | mean | typical error, held out alone | typical error |")
    print("|---|---|---|---|---|---|")
    streams = {"MNIST": (mnist, (60, 145, 300)), "CIFAR-10": (cifar, (60, 145)), "digits": (_digits(), (60, 130))}
    for name, (images, sizes) in streams.items():
        for size in sizes:
            ways = [
                np.array([rejected(*images, size, seed, left_out=left_out) for seed in range(tasks)])
                for left_out in (False, True)
            ]
            means = [f"{found.mean():.1f}" for found in ways]
            errors = [f"{np.sqrt(np.mean((found - STATED) ** 2)):.1f}" for found in ways]
            print("| " + " | ".join([name, str(size), *means, *errors]) + " |", flush=True)


if __name__ == "__main__":
    main()
