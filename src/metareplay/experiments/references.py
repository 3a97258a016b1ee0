"""Simple references for a run's figures: two scikit-learn models, one of all tasks at once, one of the last task."""

import warnings
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from metareplay.benchmarks.base import Benchmark, TaskData
from metareplay.experiments.labels import Labels
from metareplay.experiments.results import Reference, References
from metareplay.seeding import derive_seed, generator_for

MOST_ROWS, FEWEST_ROWS = 5_000, 500
MOST_NUMBERS = 4_000_000
"""A reference is trained on at most this many numbers, so that it takes seconds."""
TREES = 50
TRIED = 0.25
"""The share of the training rows on which the linear model and the forest are compared."""

Array = NDArray[Any]
NAMES = {True: ("ridge regression", "random forest"), False: ("logistic regression", "random forest")}


class _Rows(NamedTuple):
    """Training rows, and how many there were to choose from."""

    x: Array
    y: Array
    of: int


def train_references(benchmark: Benchmark, tests: Sequence[TaskData], *, seed: int) -> References:
    """Train and test both; the kind of model is chosen on training rows set aside, never on the test sets."""
    from threadpoolctl import threadpool_limits

    labels = Labels.of(benchmark)
    most = min(MOST_ROWS, max(FEWEST_ROWS, MOST_NUMBERS // prod(benchmark.input_shape)))
    with threadpool_limits(1), warnings.catch_warnings():  # the same bits on any machine; convergence is not needed
        warnings.simplefilter("ignore")
        joint = _together([_rows(benchmark, labels, task, most // len(benchmark), seed) for task in range(len(tests))])
        kind = _better(joint, benchmark.problem == "regression", seed)
        last = _rows(benchmark, labels, len(tests) - 1, most, seed)
        return References(
            joint=_tested(kind, joint, benchmark, labels, tests, seed),
            last_task=_tested(kind, last, benchmark, labels, tests, seed),
        )


def _rows(benchmark: Benchmark, labels: Labels, task: int, most: int, seed: int) -> _Rows:
    """At most this many training rows of a task, flat, and their targets."""
    x, y = benchmark[task].train
    of = len(x)
    if of > max(most, 1):
        chosen = torch.randperm(of, generator=generator_for(seed, "references", task))[: max(most, 1)].sort().values
        x, y = x[chosen], y[chosen]
    targets = y.numpy() if benchmark.problem == "regression" else labels.numbers(task, y)
    return _Rows(x.flatten(1).numpy(), targets, of)  # (N, ...) -> (N, F)


def _together(parts: Sequence[_Rows]) -> _Rows:
    return _Rows(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        sum(part.of for part in parts),
    )


def _better(rows: _Rows, regression: bool, seed: int) -> str:
    """The kind of model that does better on rows set aside."""
    order = torch.randperm(len(rows.x), generator=generator_for(seed, "references", "tried")).numpy()
    aside, rest = np.split(order, [round(TRIED * len(order))])
    if len(aside) < 2:
        return NAMES[regression][0]
    part = _Rows(rows.x[rest], rows.y[rest], len(rest))
    scores = {name: _fitted(name, part, seed).score(rows.x[aside], rows.y[aside]) for name in NAMES[regression]}
    return max(scores, key=lambda name: scores[name])


def _fitted(name: str, rows: _Rows, seed: int) -> Any:
    """A trained model of that name; where all labels are the same, one that answers with it."""
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    state = derive_seed(seed, "references", name) % 2**32
    if rows.y.ndim == 1 and len(np.unique(rows.y)) < 2:
        return DummyClassifier().fit(rows.x, rows.y)
    model = {
        "ridge regression": lambda: make_pipeline(StandardScaler(), Ridge()),
        "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)),
        "random forest": lambda: (ExtraTreesClassifier if rows.y.ndim == 1 else ExtraTreesRegressor)(
            TREES, random_state=state
        ),
    }[name]()
    return model.fit(rows.x, rows.y if rows.y.ndim == 1 or rows.y.shape[1] > 1 else rows.y[:, 0])


def _tested(
    name: str, rows: _Rows, benchmark: Benchmark, labels: Labels, tests: Sequence[TaskData], seed: int
) -> Reference:
    """Train on the rows, test on every task."""
    model = _fitted(name, rows, seed)
    if benchmark.problem == "regression":
        scale = benchmark.scaling.tensors.get("y_scale", torch.ones(1)).numpy()
        errors = [
            float(np.mean(((model.predict(x.flatten(1).numpy()).reshape(y.shape) - y.numpy()) * scale) ** 2))
            for x, y in tests
        ]
        return Reference(model=name, score=_mean(errors), by_task=errors, rows=len(rows.x), of_rows=rows.of)
    free, restricted = [], []
    for task, (x, y) in enumerate(tests):
        probabilities, truth = model.predict_proba(x.flatten(1).numpy()), labels.numbers(task, y)  # (N, C), (N,)
        own = np.isin(model.classes_, labels.by_task[task])
        free.append(_hits(model.classes_[probabilities.argmax(1)], truth))
        answers = model.classes_[np.where(own, probabilities, -1.0).argmax(1)]  # (N, C) -> (N,)
        restricted.append(_hits(answers, truth))
    known = _mean(restricted)
    return Reference(model=name, score=_mean(free), known=known, by_task=free, rows=len(rows.x), of_rows=rows.of)


def _hits(answers: Array, truth: Array) -> float:
    return float(100.0 * np.mean(answers == truth))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
