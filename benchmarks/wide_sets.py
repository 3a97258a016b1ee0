"""More tables for development: wide ones, pixels and counts as columns, many classes, many months.

By tables of these kinds it was chosen how weights are generated (``metareplay.learner.sizes``). As those of
``benchmarks.data_sets``, they are not for figures that are reported: these are measured on ``benchmarks.fresh_sets``.
"""

from collections.abc import Sequence

import numpy as np
from sklearn import datasets

from benchmarks.data_sets import GENERATED, Array, Examples, in_months, made

WIDE = "wide"


def _by_classes(x: Array, y: Array, months: Sequence[Sequence[int]]) -> list[Examples]:
    return [Examples(x[rows], y[rows]) for classes in months for rows in [np.isin(y, classes)]]


@made("digits as 64 columns, neighbours", "classification", "new classes", group=WIDE)
def _neighbours(random: np.random.Generator) -> list[Examples]:
    return _by_classes(*datasets.load_digits(return_X_y=True), [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)])


@made("digits as 64 columns, three a month", "classification", "new classes", group=WIDE)
def _three(random: np.random.Generator) -> list[Examples]:
    return _by_classes(*datasets.load_digits(return_X_y=True), [(1, 7, 9), (0, 6, 8), (2, 3, 5)])


@made("digits in black and white", "classification", "new classes", group=WIDE)
def _black_and_white(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.load_digits(return_X_y=True)
    return _by_classes((x > 7).astype(float), y, [(3, 8), (1, 7), (4, 9), (0, 6), (2, 5)])


@made("counts of sixty words", "classification", "old and new classes", GENERATED, group=WIDE)
def _words(random: np.random.Generator) -> list[Examples]:
    """Most counts are zero; three of five topics every month."""
    topics, months = random.dirichlet(np.full(60, 0.15), 5), []
    for month in range(3):
        y, lengths = random.choice([month, month + 1, month + 2], 560), random.poisson(25, 560)
        shares = 0.6 * topics[y] + 0.4 * topics.mean(0)
        x = np.stack([random.multinomial(length, share) for length, share in zip(lengths, shares, strict=True)])
        months.append(Examples(x.astype(float), y))
    return months


@made("skewed columns, units from 0.001 to a billion", "classification", "drift", GENERATED, group=WIDE)
def _skewed(random: np.random.Generator) -> list[Examples]:
    weights, months = random.normal(size=12), []
    for month in range(4):
        z = random.normal(size=(700, 12)) + 0.2 * month * random.normal(size=12)
        y = (z @ weights + 0.7 * random.normal(size=700) > 0).astype(int)
        months.append(Examples(np.exp(1.5 * z) * 10.0 ** np.arange(-3, 9), y))
    return months


@made("64 columns, 100 rows a month", "classification", "drift", GENERATED, group=WIDE)
def _few_rows(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.make_classification(1600, 64, n_informative=12, n_redundant=12, random_state=5)
    parts = in_months(x, y, random, 4)
    return [Examples(part.x + 0.3 * month * random.normal(size=64), part.y) for month, part in enumerate(parts)]


@made("eight new classes a month", "classification", "new classes", GENERATED, group=WIDE)
def _many_classes(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.make_classification(
        4800, 20, n_informative=12, n_redundant=4, n_classes=24, n_clusters_per_class=1, class_sep=2.0, random_state=6
    )
    return [Examples(x[rows], y[rows]) for rows in (y // 8 == month for month in range(3))]


@made("six of sixteen columns come later", "classification", "drift", GENERATED, group=WIDE)
def _late_columns(random: np.random.Generator) -> list[Examples]:
    weights, months = random.normal(size=16), []
    for month in range(4):
        z = random.normal(size=(600, 16))
        z[:, 10:] *= month > 0
        y = (z @ weights + 0.8 * np.sin(2 * z[:, 0]) + 0.3 * random.normal(size=600) > 0).astype(int)
        months.append(Examples(z * np.linspace(0.1, 30, 16) + np.linspace(-5, 50, 16), y))
    return months


@made("forests and soils", "classification", "drift", GENERATED, group=WIDE)
def _soils(random: np.random.Generator) -> list[Examples]:
    """Twelve kinds of places make four classes: eight numbers, and one of twenty soils, one-hot."""
    centres, labels = 1.5 * random.normal(size=(12, 8)), random.integers(0, 4, 12)
    soils, months = random.dirichlet(np.full(20, 0.4), 12), []
    units = np.array([500, 50, 10, 200, 300, 30, 20, 900])
    for month in range(3):
        kinds = random.choice(12, 1200, p=np.roll(np.linspace(1, 3, 12) / 24, 2 * month))
        numbers = (centres[kinds] + random.normal(size=(1200, 8)) + 5) * units
        soil = np.eye(20)[[random.choice(20, p=soils[kind]) for kind in kinds]]
        months.append(Examples(np.concatenate([numbers, soil], 1), labels[kinds]))
    return months


@made("thirty months, each with a rule of its own", "classification", "drift", GENERATED, group=WIDE)
def _thirty(random: np.random.Generator) -> list[Examples]:
    months = []
    for _ in range(30):
        weights, x = random.normal(size=(6, 2)), random.normal(size=(600, 6))
        score = np.tanh(x @ weights[:, 0]) + 0.8 * np.abs(x @ weights[:, 1]) - 0.7
        y = (score + 0.2 * random.normal(size=600) > 0).astype(int)
        months.append(Examples(x + 0.5 * random.normal(size=6), y))
    return months
