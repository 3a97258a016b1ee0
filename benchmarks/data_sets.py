"""Small data sets as people have them: tables that come month by month, with drift, new classes, or both.

Scikit-learn's own data sets and generated ones; nothing is downloaded. Every stream is the same each time. Rules and
constants of the package were chosen with these in view: they are for development. What is reported is measured on
others, ``benchmarks.fresh_sets`` and ``benchmarks.image_sets``.

>>> for name in names():
...     for month in stream(name).months:    # arrays: month.train.x, month.train.y, month.test.x, month.test.y
...         pass
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.decomposition import PCA

Array = NDArray[np.generic]
Kind = Literal["classification", "regression"]
Change = Literal["drift", "new classes", "old and new classes", "none"]
Group = Literal["development", "wide", "lone", "pooled", "fresh", "images", "photos"]
TEST_SHARE = 0.3
"""The share of every month that is only for testing; more of data that are generated."""
GENERATED = 0.75
MONTHS = 3


class Examples(NamedTuple):
    """Rows and their labels or targets."""

    x: Array
    y: Array


class Month(NamedTuple):
    """A task: what may be learned from, and what is tested on."""

    train: Examples
    test: Examples


@dataclass(frozen=True)
class Stream:
    """A named data set that comes month by month."""

    name: str
    kind: Kind
    change: Change
    months: Sequence[Month]

    @property
    def rows(self) -> int:
        """To learn from, of all months together."""
        return sum(len(month.train.x) for month in self.months)


Maker = Callable[[np.random.Generator], list[Examples]]


class _Made(NamedTuple):
    kind: Kind
    change: Change
    test_share: float
    group: Group
    maker: Maker


_MADE: dict[str, _Made] = {}


def made(
    name: str, kind: Kind, change: Change, test_share: float = TEST_SHARE, *, group: Group = "development"
) -> Callable[[Maker], Maker]:
    """Registers what makes a stream's months."""

    def register(maker: Maker) -> Maker:
        _MADE[name] = _Made(kind, change, test_share, group, maker)
        return maker

    return register


def names(kind: Kind | None = None, group: Group = "development") -> list[str]:
    """The names of all streams of a group, or of one kind of them."""
    return [name for name, of_name in _MADE.items() if kind in (None, of_name.kind) and group == of_name.group]


def stream(name: str, seed: int = 0) -> Stream:
    """The stream of that name; ``seed`` chooses its test rows."""
    kind, change, share, _, maker = _MADE[name]
    months, random = maker(np.random.default_rng(list(name.encode()))), np.random.default_rng(seed)
    return Stream(name, kind, change, [_split(examples, share, random) for examples in months])


def _split(examples: Examples, share: float, random: np.random.Generator) -> Month:
    order = random.permutation(len(examples.x))
    test, train = np.split(order, [round(share * len(order))])
    return Month(*(Examples(examples.x[rows].astype(np.float32), examples.y[rows]) for rows in (train, test)))


def in_months(x: Array, y: Array, random: np.random.Generator, months: int = MONTHS) -> list[Examples]:
    """Rows at random."""
    return [Examples(x[rows], y[rows]) for rows in np.array_split(random.permutation(len(x)), months)]


def standardised(x: Array) -> Array:
    """Columns with mean 0 and variance 1."""
    return (x - x.mean(0)) / np.maximum(x.std(0), 1e-9)


# Classes: the same every month.


@made("iris, sensors drift", "classification", "drift")
def _iris(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.load_iris(return_X_y=True)
    shift = random.normal(size=x.shape[1])
    return [Examples(part.x + 0.4 * month * shift, part.y) for month, part in enumerate(in_months(x, y, random))]


@made("wine, no change", "classification", "none")
def _wine(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.load_wine(return_X_y=True)
    return in_months(x, y, random)


@made("wine, half of the columns drift", "classification", "drift")
def _wine_drift(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.load_wine(return_X_y=True)
    x = standardised(x)
    shift = random.normal(size=x.shape[1]) * (random.random(x.shape[1]) < 0.5)
    return [Examples(part.x + 0.7 * month * shift, part.y) for month, part in enumerate(in_months(x, y, random))]


@made("breast cancer, new units", "classification", "drift")
def _cancer(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.load_breast_cancer(return_X_y=True)
    x, y = standardised(x), np.array(["malignant", "benign"])[y]
    scale = np.exp(0.3 * random.normal(size=x.shape[1]))
    return [Examples(part.x * scale**month, part.y) for month, part in enumerate(in_months(x, y, random))]


@made("moons, turning", "classification", "drift", GENERATED)
def _moons(random: np.random.Generator) -> list[Examples]:
    months = []
    for month in range(MONTHS):
        x, y = datasets.make_moons(700, noise=0.2, random_state=month)
        angle = 0.5 * month
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        months.append(Examples(x @ turn, y))
    return months


@made("noisy labels, the boundary moves", "classification", "drift", GENERATED)
def _boundary(random: np.random.Generator) -> list[Examples]:
    months, normal = [], random.normal(size=8)
    for _ in range(MONTHS):
        x = random.normal(size=(840, 8))
        logits = 2 * (x @ normal) / np.linalg.norm(normal) + 0.5 * x[:, 0] * x[:, 1]
        months.append(Examples(x, (random.random(840) < 1 / (1 + np.exp(-2 * logits))).astype(int)))
        normal = normal + 0.3 * random.normal(size=8)
    return months


@made("customers, rare class, slow drift", "classification", "drift", GENERATED)
def _customers(random: np.random.Generator) -> list[Examples]:
    """Numbers on different scales, yes or no, and counts; one customer in five leaves."""
    months = []
    for month in range(MONTHS):
        age = random.normal(45 + month, 12, 600)
        spent = np.exp(random.normal(4 + 0.1 * month, 0.8, 600))
        contract = random.integers(0, 2, 600)
        calls = random.poisson(2 + 0.3 * month, 600)
        logits = -2.2 + 0.6 * calls - 1.5 * contract - 0.02 * (age - 45) - 0.2 * (np.log(spent) - 4)
        left = random.random(600) < 1 / (1 + np.exp(-1.5 * logits))
        months.append(Examples(np.stack([age, spent, contract, calls], 1), np.where(left, "leaves", "stays")))
    return months


# Classes: new ones.


def _digits_as_columns() -> tuple[Array, Array]:
    x, y = datasets.load_digits(return_X_y=True)
    return PCA(16, random_state=0).fit_transform(x), y


@made("digits, new classes", "classification", "new classes")
def _digits_new(random: np.random.Generator) -> list[Examples]:
    x, y = _digits_as_columns()
    return [Examples(x[rows], y[rows]) for rows in (y < 4, (y >= 4) & (y < 7), y >= 7)]


@made("digits, old and new classes", "classification", "old and new classes")
def _digits_both(random: np.random.Generator) -> list[Examples]:
    x, y = _digits_as_columns()
    parts = in_months(x, y, random)
    return [
        Examples(part.x[rows], part.y[rows])
        for part, low, high in zip(parts, (0, 2, 4), (6, 8, 10), strict=True)
        for rows in [(part.y >= low) & (part.y < high)]
    ]


@made("clusters, new classes", "classification", "new classes", GENERATED)
def _clusters(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.make_classification(
        2500, 12, n_informative=8, n_redundant=2, n_classes=6, n_clusters_per_class=1, class_sep=1.5, random_state=0
    )
    return [Examples(x[rows], y[rows]) for rows in (y // 2 == month for month in range(3))]


@made("clusters, old and new classes, drift", "classification", "old and new classes", GENERATED)
def _clusters_both(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.make_classification(
        2500, 10, n_informative=6, n_redundant=2, n_classes=5, n_clusters_per_class=1, class_sep=1.5, random_state=1
    )
    parts, shift = in_months(x, y, random), random.normal(size=10)
    return [
        Examples(part.x[rows] + 0.5 * month * shift, part.y[rows])
        for month, part in enumerate(parts)
        for rows in [(part.y >= month) & (part.y < month + 3)]
    ]


# Regression.


@made("diabetes, no change", "regression", "none")
def _diabetes(random: np.random.Generator) -> list[Examples]:
    return in_months(*datasets.load_diabetes(return_X_y=True), random)


@made("diabetes, by age", "regression", "drift")
def _diabetes_by_age(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.load_diabetes(return_X_y=True)
    return [Examples(x[rows], y[rows]) for rows in np.array_split(np.argsort(x[:, 0], kind="stable"), MONTHS)]


@made("friedman, inputs drift", "regression", "drift", GENERATED)
def _friedman(random: np.random.Generator) -> list[Examples]:
    months = []
    for month in range(MONTHS):
        x, y = datasets.make_friedman1(840, 8, noise=1.0, random_state=month)
        months.append(Examples(x + 0.8 * month * (np.arange(8) == 6), y + 2.0 * month))
    return months


@made("sales, seasons", "regression", "drift", GENERATED)
def _sales(random: np.random.Generator) -> list[Examples]:
    """Price, advertising, temperature and weekend; every season has its own temperatures and its own trend."""
    months = []
    for month in range(4):
        price, adverts = random.uniform(5, 15, 640), random.gamma(2.0, 50.0, 640)
        warmth = random.normal(5 + 8 * month, 4, 640)
        weekend = random.random(640) < 2 / 7
        y = 300 - 12 * price + 0.4 * adverts + 3 * warmth * (month == 2) + 60 * weekend + 20 * month
        months.append(Examples(np.stack([price, adverts, warmth, weekend], 1), y + random.normal(0, 20, 640)))
    return months


@made("wide noise, the slope changes", "regression", "drift", GENERATED)
def _wide_noise(random: np.random.Generator) -> list[Examples]:
    """The noise grows with the first input."""
    months, slope = [], random.normal(size=5)
    for month in range(MONTHS):
        x = random.normal(size=(420, 5)) + 1.5 * month * np.eye(5)[4]
        y = x @ slope + np.sin(2 * x[:, 1]) + (0.2 + 0.5 * np.abs(x[:, 0])) * random.normal(size=420)
        months.append(Examples(x, y))
        slope = slope + 0.5 * random.normal(size=5)
    return months
