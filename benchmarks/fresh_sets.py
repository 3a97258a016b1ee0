"""Tables that nothing in the package was chosen by: figures in the docs are measured on these.

As ``benchmarks.data_sets``, in other kinds: other orders of scikit-learn's data, other generators, imbalance, words and
gaps (encoded as a file's columns are), classes that come alone, columns that are constant at first, series of sensors.
"""

import numpy as np
from sklearn import datasets

from benchmarks.data_sets import GENERATED, MONTHS, Array, Examples, in_months, made, standardised

FRESH = "fresh"
ROWS = 560
"""Of a generated month, most of them for testing."""


# The same classes every month.


@made("breast cancer, by texture", "classification", "drift", group=FRESH)
def _cancer_by_texture(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.load_breast_cancer(return_X_y=True)
    return [Examples(x[rows], y[rows]) for rows in np.array_split(np.argsort(x[:, 1], kind="stable"), MONTHS)]


@made("circles, growing", "classification", "drift", GENERATED, group=FRESH)
def _circles(random: np.random.Generator) -> list[Examples]:
    months = []
    for month in range(MONTHS):
        x, y = datasets.make_circles(ROWS, noise=0.12, factor=0.55, random_state=10 + month)
        months.append(Examples((1 + 0.5 * month) * x, np.array(["in", "out"])[y]))
    return months


@made("rare faults, 8 % of rows", "classification", "drift", GENERATED, group=FRESH)
def _rare(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.make_classification(
        3 * ROWS, 14, n_informative=6, n_redundant=3, weights=[0.92], flip_y=0.02, class_sep=1.2, random_state=21
    )
    shift = random.normal(size=14)
    return [Examples(part.x + 0.3 * month * shift, part.y) for month, part in enumerate(in_months(x, y, random))]


@made("ten Gaussians, nothing changes", "classification", "none", GENERATED, group=FRESH)
def _hastie(random: np.random.Generator) -> list[Examples]:
    """The class is whether the squared norm of ten normal columns is large: no column says anything by itself."""
    x, y = datasets.make_hastie_10_2(3 * 1000, random_state=22)
    return in_months(x, y.astype(int), random)


@made("shells, new units", "classification", "drift", GENERATED, group=FRESH)
def _shells(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.make_gaussian_quantiles(n_samples=3 * ROWS, n_features=4, n_classes=3, random_state=23)
    units = np.exp(0.5 * random.normal(size=4))
    return [Examples(part.x * units**month, part.y) for month, part in enumerate(in_months(x, y, random))]


@made("loans, words and gaps", "classification", "drift", GENERATED, group=FRESH)
def _loans(random: np.random.Generator) -> list[Examples]:
    """Two columns of words, one-hot; a tenth of the incomes is missing and gets the first month's mean."""
    months, filled = [], 0.0
    for month in range(4):
        income = np.exp(random.normal(7.8 + 0.08 * month, 0.5, ROWS))
        asked = np.exp(random.normal(9.0, 0.7, ROWS))
        job = random.choice(4, ROWS, p=np.roll([0.4, 0.3, 0.2, 0.1], month))
        town = random.choice(6, ROWS)
        logits = 1.2 * (np.log(income) - 7.8) - 0.9 * (np.log(asked) - 9) + np.array([0.8, 0.0, -0.6, -1.4])[job]
        paid = random.random(ROWS) < 1 / (1 + np.exp(-2 * logits - 0.8))
        income[random.random(ROWS) < 0.1] = np.nan
        filled = float(np.nanmean(income)) if month == 0 else filled
        numbers = np.stack([np.nan_to_num(income, nan=filled), asked, random.integers(18, 70, ROWS)], 1)
        months.append(Examples(np.concatenate([numbers, np.eye(4)[job], np.eye(6)[town]], 1), np.where(paid, "y", "n")))
    return months


@made("meters, one is installed in May", "classification", "drift", GENERATED, group=FRESH)
def _meters(random: np.random.Generator) -> list[Examples]:
    """Two columns are constant in the first month and matter in the later ones."""
    months, normal = [], random.normal(size=7)
    for month in range(MONTHS):
        x = random.normal(size=(ROWS, 7)) * [1, 20, 0.1, 5, 1, 300, 2] + [0, 50, 0.7, 0, 10, 2000, 0]
        if month == 0:
            x[:, 5], x[:, 6] = 0.0, 1.0
        z = (x - x.mean(0)) / np.maximum(x.std(0), 1e-9)
        y = z @ normal + 0.5 * z[:, 0] * z[:, 1] + 0.4 * random.normal(size=ROWS) > 0.3
        months.append(Examples(x, y.astype(int)))
    return months


# New classes.


@made("iris, one species a month", "classification", "new classes", group=FRESH)
def _iris_alone(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.load_iris(return_X_y=True)
    kinds = np.array(["setosa", "versicolor", "virginica"])[y]
    return [Examples(x[rows], kinds[rows]) for rows in (y == 1, y == 0, y == 2)]


@made("wine, two of three every month", "classification", "old and new classes", group=FRESH)
def _wine_pairs(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.load_wine(return_X_y=True)
    parts = in_months(x, y, random)
    return [
        Examples(part.x[rows], part.y[rows])
        for part, missing in zip(parts, (2, 0, 1), strict=True)
        for rows in [part.y != missing]
    ]


@made("digits as 64 columns, pairs", "classification", "new classes", group=FRESH)
def _digits_pairs(random: np.random.Generator) -> list[Examples]:
    """Some columns are constant in the first month."""
    x, y = datasets.load_digits(return_X_y=True)
    return [Examples(x[rows], y[rows]) for pair in random.permutation(10).reshape(5, 2) for rows in [np.isin(y, pair)]]


@made("blobs, new classes of unlike size", "classification", "new classes", GENERATED, group=FRESH)
def _blobs(random: np.random.Generator) -> list[Examples]:
    sizes = [500, 120, 300, 80, 400, 200]
    x, y = datasets.make_blobs(sizes, 6, cluster_std=[2.0, 1.0, 2.5, 1.5, 3.0, 2.0], random_state=24)
    return [Examples(x[rows], y[rows]) for rows in (y // 2 == month for month in range(3))]


@made("pumps, a new fault every month", "classification", "old and new classes", GENERATED, group=FRESH)
def _pumps(random: np.random.Generator) -> list[Examples]:
    """Windows of two sensors, as means, spreads, extremes and spectra; healthy ones occur in every month."""
    months = []
    for month in range(MONTHS):
        fault = random.choice([0, month + 1], ROWS, p=[0.6, 0.4])
        x = np.stack([_window(int(kind), month, random) for kind in fault])
        months.append(Examples(x, np.array(["healthy", "bearing", "leak", "imbalance"])[fault]))
    return months


def _window(fault: int, month: int, random: np.random.Generator) -> Array:
    time, phase = np.arange(64), random.uniform(0, 2 * np.pi)
    vibration = np.sin(0.5 * time + phase) + (0.5 + 0.05 * month) * random.normal(size=64)
    pressure = 3.0 + 0.2 * random.normal() + 0.1 * random.normal(size=64)
    if fault == 1:
        vibration = vibration + 0.9 * np.sin(2.1 * time + phase)
    elif fault == 2:
        pressure = pressure - np.abs(0.5 * random.normal()) * time / 64 - 0.15
    elif fault == 3:
        vibration = (1.3 + 0.3 * random.random()) * vibration
    spectrum = np.abs(np.fft.rfft(vibration))[[4, 5, 6, 20, 21, 22]]
    return np.array(
        [vibration.std(), np.abs(vibration).max(), pressure.mean(), pressure.min(), pressure.std(), *spectrum]
    )


# Regression.


@made("diabetes, by body mass", "regression", "drift", group=FRESH)
def _diabetes_by_mass(random: np.random.Generator) -> list[Examples]:
    x, y = datasets.load_diabetes(return_X_y=True)
    return [Examples(x[rows], y[rows]) for rows in np.array_split(np.argsort(x[:, 2], kind="stable"), MONTHS)]


@made("friedman 2, other circuits", "regression", "drift", GENERATED, group=FRESH)
def _friedman2(random: np.random.Generator) -> list[Examples]:
    months = []
    for month in range(MONTHS):
        x, y = datasets.make_friedman2(ROWS, noise=60.0, random_state=30 + month)
        months.append(Examples(x * [1 + 0.4 * month, 1, 1, 1], y))
    return months


@made("linear, heavy tails", "regression", "drift", GENERATED, group=FRESH)
def _tails(random: np.random.Generator) -> list[Examples]:
    """Most of fifteen columns do not matter; the noise has Student's distribution with three degrees of freedom."""
    x, y = datasets.make_regression(3 * 480, 15, n_informative=6, random_state=31)
    y = standardised(y[:, None])[:, 0] + 0.3 * random.standard_t(3, len(y))
    shift = random.normal(size=15)
    return [Examples(part.x + 0.5 * month * shift, part.y) for month, part in enumerate(in_months(x, y, random))]


@made("power by the hour", "regression", "drift", group=FRESH)
def _power(random: np.random.Generator) -> list[Examples]:
    """Hour and weekday on circles, temperature and the power of a day ago; four seasons of three weeks."""
    months = []
    for season, warmth in enumerate((2.0, 12.0, 24.0, 10.0)):
        hours = np.arange(24 * 21)
        temperature = warmth + 4 * np.sin(2 * np.pi * (hours - 9) / 24) + np.cumsum(random.normal(0, 0.2, len(hours)))
        need = 30 + 12 * np.cos(2 * np.pi * (hours - 19) / 24) - 6 * (hours // 24 % 7 >= 5)
        need = need + 0.8 * np.abs(temperature - 17) + (1 + 0.3 * season) * random.normal(size=len(hours))
        angles = (2 * np.pi * hours / 24, 2 * np.pi * hours / 168)
        columns = [f(angle) for angle in angles for f in (np.sin, np.cos)]
        x = np.stack([*columns, temperature, np.roll(need, 24)], 1)
        months.append(Examples(x[24:], need[24:]))
    return months


@made("two targets, the second is noisy", "regression", "drift", GENERATED, group=FRESH)
def _two_targets(random: np.random.Generator) -> list[Examples]:
    months, weights = [], random.normal(size=(6, 2))
    for month in range(MONTHS):
        x = random.normal(size=(ROWS, 6)) + 0.6 * month * np.eye(6)[1]
        y = x @ weights + np.stack([np.abs(x[:, 0]), x[:, 1] * x[:, 2]], 1)
        months.append(Examples(x, y + random.normal(size=(ROWS, 2)) * [0.3, 1.5]))
        weights = weights + 0.3 * random.normal(size=(6, 2))
    return months
