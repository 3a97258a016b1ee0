"""Images that nothing in the package was chosen by: MNIST and CIFAR-10 in part, enlarged digits, drawn shapes.

MNIST and CIFAR-10 are looked for as ``metareplay run split-mnist`` does; ``METAREPLAY_DATA`` may name their folder.
"""

import numpy as np
from sklearn import datasets

from benchmarks.data_sets import Array, Examples, made
from metareplay.data.base import LabelledImages
from metareplay.data.sources import load_cifar10, load_mnist

IMAGES = "images"
PER_CLASS = 560
"""Images of a class, of which two in seven are for testing."""
TEST = 2 / 7
SHAPES = ("disc", "ring", "square", "triangle", "cross", "stripes", "bar", "dots")


def _pairs(x: Array, y: Array, order: Array) -> list[Examples]:
    """Two classes a month."""
    return [Examples(x[rows], y[rows]) for pair in order.reshape(-1, 2) for rows in [np.isin(y, pair)]]


def _some(images: LabelledImages, random: np.random.Generator) -> tuple[Array, Array]:
    """So many training images of every class."""
    y = images.train_y.numpy()
    rows = np.concatenate([random.permutation(np.flatnonzero(y == label))[:PER_CLASS] for label in np.unique(y)])
    return images.train_x.numpy()[rows], y[rows]


@made("MNIST, pairs", "classification", "new classes", TEST, group=IMAGES)
def _mnist(random: np.random.Generator) -> list[Examples]:
    return _pairs(*_some(load_mnist(), random), random.permutation(10))


@made("CIFAR-10, pairs", "classification", "new classes", TEST, group=IMAGES)
def _cifar(random: np.random.Generator) -> list[Examples]:
    return _pairs(*_some(load_cifar10(), random), random.permutation(10))


@made("digits, enlarged, pairs", "classification", "new classes", TEST, group=IMAGES)
def _digits(random: np.random.Generator) -> list[Examples]:
    digits = datasets.load_digits()
    large = np.kron(digits.images, np.ones((2, 2)))[:, None]  # (N, 8, 8) -> (N, 1, 16, 16)
    return _pairs(large, digits.target, random.permutation(10))


@made("drawn shapes, pairs", "classification", "new classes", TEST, group=IMAGES)
def _shapes(random: np.random.Generator) -> list[Examples]:
    y = np.repeat(np.arange(len(SHAPES)), PER_CLASS)
    x = np.stack([drawn(SHAPES[label], random) for label in y])[:, None]  # (N, 1, 28, 28)
    return _pairs(x, np.array(SHAPES)[y], np.array(SHAPES)[random.permutation(len(SHAPES))])


def drawn(shape: str, random: np.random.Generator, side: int = 28) -> Array:
    """One bright shape on a dark ground, anywhere, of any size and angle, with noise."""
    size, angle = random.uniform(5.0, 9.0), random.uniform(0, 2 * np.pi)
    centre = side / 2 + random.uniform(-4.0, 4.0, 2)
    down, right = np.mgrid[:side, :side] - centre[:, None, None]
    u = (np.cos(angle) * right + np.sin(angle) * down) / size
    v = (np.cos(angle) * down - np.sin(angle) * right) / size
    radius = np.hypot(u, v)
    inside = {
        "disc": radius < 0.9,
        "ring": np.abs(radius - 0.8) < 0.2,
        "square": np.maximum(np.abs(u), np.abs(v)) < 0.8,
        "triangle": (v > -0.5) & (v < 1 - 1.7 * np.abs(u)),
        "cross": (np.minimum(np.abs(u), np.abs(v)) < 0.2) & (np.maximum(np.abs(u), np.abs(v)) < 1),
        "stripes": (np.maximum(np.abs(u), np.abs(v)) < 0.9) & (np.sin(7 * u) > 0),
        "bar": (np.abs(u) < 0.3) & (np.abs(v) < 1.1),
        "dots": (radius < 1) & (np.sin(6 * u) * np.sin(6 * v) > 0.3),
    }[shape]
    return np.clip(random.uniform(120, 255) * inside + random.normal(0, 15, (side, side)), 0, 255)
