"""More tables for development: every month brings one class, alone.

By tables of these kinds it was chosen how tasks of a single class are told apart. As those of ``benchmarks.data_sets``,
they are not for figures that are reported: these are measured on ``benchmarks.fresh_sets``.
"""

from collections.abc import Sequence

import numpy as np
from sklearn import datasets
from sklearn.decomposition import PCA

from benchmarks.data_sets import GENERATED, Array, Examples, made

LONE = "lone"


def _one_by_one(x: Array, y: Array, order: Sequence[int]) -> list[Examples]:
    return [Examples(x[y == label], y[y == label]) for label in order]


@made("wine, one class a month", "classification", "new classes", group=LONE)
def _wine(random: np.random.Generator) -> list[Examples]:
    return _one_by_one(*datasets.load_wine(return_X_y=True), (1, 2, 0))


@made("breast cancer, one class a month", "classification", "new classes", group=LONE)
def _cancer(random: np.random.Generator) -> list[Examples]:
    return _one_by_one(*datasets.load_breast_cancer(return_X_y=True), (1, 0))


@made("digits as 16 columns, one a month", "classification", "new classes", group=LONE)
def _digits(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.load_digits(return_X_y=True)
    return _one_by_one(PCA(16, random_state=0).fit_transform(x), y, range(10))


@made("blobs that overlap, one a month", "classification", "new classes", GENERATED, group=LONE)
def _blobs(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.make_blobs([160, 400, 240, 600], 4, cluster_std=[2.5, 1.5, 3.0, 2.0], random_state=41)
    return _one_by_one(x, y, (2, 0, 3, 1))


@made("clusters, small classes, one a month", "classification", "new classes", GENERATED, group=LONE)
def _clusters(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.make_classification(
        800, 6, n_informative=5, n_redundant=1, n_classes=4, n_clusters_per_class=1, class_sep=1.3, random_state=42
    )
    return _one_by_one(x, y, (0, 1, 2, 3))


def _flowers(sizes: Sequence[float], order: Sequence[int], random: np.random.Generator) -> list[Examples]:
    """Kinds of unlike size, whose lengths and widths grow together; a quarter of 180 of each to learn from."""
    kinds = []
    for size in sizes:
        common = random.normal(size, 0.08 * size, 180)
        shape = np.array([4.0, 2.5, 2.0 * size, 0.6 * size])
        kinds.append(common[:, None] * shape + random.normal(0, 0.4, (180, 4)))
    return _one_by_one(np.concatenate(kinds), np.repeat(np.arange(len(sizes)), 180), order)


@made("flowers, the last kind overlaps", "classification", "new classes", GENERATED, group=LONE)
def _flowers_last(random: np.random.Generator) -> list[Examples]:
    return _flowers((1.0, 1.9, 2.15), (1, 0, 2), random)


@made("flowers, the second kind overlaps", "classification", "new classes", GENERATED, group=LONE)
def _flowers_second(random: np.random.Generator) -> list[Examples]:
    return _flowers((1.2, 2.0, 2.25, 3.2), (1, 2, 0, 3), random)
