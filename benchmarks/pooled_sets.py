"""More tables for development: months that follow the same rule, or nearly, so that their answers are mixed.

By tables of these kinds it was chosen how certain mixed answers are. As those of ``benchmarks.data_sets``, they are not
for figures that are reported: these are measured on ``benchmarks.fresh_sets``.
"""

import numpy as np
from sklearn import datasets

from benchmarks.data_sets import GENERATED, MONTHS, Examples, in_months, made

POOLED = "pooled"


@made("three shells around a centre, no change", "classification", "none", GENERATED, group=POOLED)
def _quantiles(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.make_gaussian_quantiles(
        n_samples=4500, n_features=6, n_classes=3, random_state=int(random.integers(10**6))
    )
    return in_months(x, y, random)


@made("product of two columns, noisy labels, no change", "classification", "none", GENERATED, group=POOLED)
def _product(random: np.random.Generator) -> list[Examples]:
    x = random.normal(size=(3000, 5))
    wrong = random.random(len(x)) < 0.08
    return in_months(x, ((x[:, 0] * x[:, 1] > 0) ^ wrong).astype(int), random)


@made("four classes in twelve columns, no change", "classification", "none", GENERATED, group=POOLED)
def _four(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.make_classification(
        n_samples=3600,
        n_features=12,
        n_informative=6,
        n_redundant=2,
        n_classes=4,
        class_sep=0.9,
        random_state=int(random.integers(10**6)),
    )
    return in_months(x, y, random)


@made("spirals, growing", "classification", "drift", GENERATED, group=POOLED)
def _spirals(random: np.random.Generator) -> list[Examples]:
    months, count = [], 1400
    for month in range(MONTHS):
        turn = random.random(count) * 2.2 * np.pi + 0.4
        y = random.integers(0, 2, count)
        angle = turn + np.pi * y
        x = (1 + 0.25 * month) * np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1)
        months.append(Examples(x + random.normal(0, 0.45, x.shape), y))
    return months


@made("spheres, growing", "classification", "drift", GENERATED, group=POOLED)
def _spheres(random: np.random.Generator) -> list[Examples]:
    months, count = [], 1400
    for month in range(MONTHS):
        y = random.integers(0, 3, count)
        radius = (1 + y) * (1 + 0.2 * month) + random.normal(0, 0.25, count)
        direction = random.normal(size=(count, 3))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        months.append(Examples(direction * radius[:, None], y))
    return months


@made("waves and products, no change", "regression", "none", GENERATED, group=POOLED)
def _waves(random: np.random.Generator) -> list[Examples]:
    x = random.normal(size=(3000, 6))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.3 * random.normal(size=len(x))
    return in_months(x, y, random)


@made("two noisy targets, no change", "regression", "none", GENERATED, group=POOLED)
def _two(random: np.random.Generator) -> list[Examples]:
    x = random.normal(size=(3000, 6))
    first = x @ random.normal(size=6) + 0.5 * random.normal(size=len(x))
    return in_months(x, np.stack([first, np.abs(x[:, 0]) + 0.8 * random.normal(size=len(x))], axis=1), random)


@made("linear, inputs drift", "regression", "drift", GENERATED, group=POOLED)
def _linear(random: np.random.Generator) -> list[Examples]:
    months, slope = [], np.array([1.0, 2.0, 0.0, -1.0, 0.5])
    for month in range(MONTHS):
        x = random.normal(size=(1200, 5)) + 0.5 * month
        months.append(Examples(x, x @ slope + random.normal(size=len(x))))
    return months
