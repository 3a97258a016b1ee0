"""Ways to learn a stream of ``benchmarks.data_sets``, and what each answers for its test rows."""

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor, IsolationForest
from sklearn.linear_model import LogisticRegression, RidgeCV, SGDClassifier, SGDRegressor
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.data_sets import Array, Stream
from benchmarks.sizes import fixed_settings
from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.evaluation.strangers import auroc, far, mixed_rows

Record = dict[str, Any]
"""What one way answered for one stream and seed: lists with a value for each test row, and single figures."""
EPOCHS = 5
"""Passes of ``partial_fit`` over each month."""


def strangers(data: Stream, seed: int) -> dict[str, Array]:
    """Rows that belong to no month: noise, columns that do not go together, and values far away, or blank images."""
    x = np.concatenate([month.test.x for month in data.months])
    generator = torch.Generator().manual_seed(seed)
    shuffled = mixed_rows(torch.tensor(x), generator).numpy()
    if x.ndim > 2:
        noise = x.min() + (x.max() - x.min()) * np.random.default_rng(seed).random(x.shape)
        return {"noise": noise.astype(np.float32), "mixed": shuffled, "far": np.zeros_like(x)}
    noise = x.mean(0) + 3 * x.std(0) * np.random.default_rng(seed).normal(size=x.shape)
    return {"noise": noise.astype(np.float32), "mixed": shuffled, "far": far(torch.tensor(x), generator).numpy()}


def with_method(
    data: Stream, seed: int, *, method: str = "pr-bbb", criterion: str | None = None, **settings: Any
) -> Record:
    """A method of the package; by default with default settings."""
    kind = ContinualClassifier if data.kind == "classification" else ContinualRegressor
    model, began = kind(method, seed=seed, settings=settings), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for index, month in enumerate(data.months):
            model.learn_task(month.train.x, month.train.y, name=str(index))
    found: Record = {"seconds": (time.process_time() - began) / len(data.months), "warnings": len(caught)}
    found["network"] = model.config.network
    for index, (_, test) in enumerate(data.months):
        for name, task in (("given", str(index)), ("inferred", None)):
            answer: Any = model.predict_full(test.x, task, criterion=None if task else criterion)
            if data.kind == "classification":
                _add(found, name, answer.probabilities.max(1))
                _add(found, f"{name} right", answer.labels == test.y)
            else:
                _add(found, name, answer.mean)
                lower, upper = _interval(answer)
                _add(found, f"{name} inside", (lower <= test.y) & (test.y <= upper))
            if task is None:
                _add(found, "right task", np.array(answer.task) == str(index))
        _add(found, "y", test.y if data.kind == "regression" else [])
    found["auroc"] = _unknown(model, data, seed, criterion)
    return found


def _interval(answer: Any) -> tuple[Array, Array]:
    if answer.lower is not None:
        return answer.lower, answer.upper
    return answer.mean - 1.96 * answer.std, answer.mean + 1.96 * answer.std


def _unknown(model: Any, data: Stream, seed: int, criterion: str | None) -> dict[str, float]:
    """AUROC of how strange rows are; before there was such a measure, of how uncertain the answer is."""

    def score(x: Array) -> torch.Tensor:
        answer = model._answer(x, None, criterion, None)
        if criterion is None and answer.strangeness is not None:
            return answer.strangeness
        return answer.total if data.kind == "classification" else answer.std.mean(1)

    known = score(np.concatenate([month.test.x for month in data.months]))
    return {name: auroc(known, score(rows)) for name, rows in strangers(data, seed).items()}


def before(data: Stream, seed: int) -> Record:
    """As it was before sizes by rule, statistics and calibration: fixed sizes, tasks by entropy, raw answers."""
    settings = {**fixed_settings(data.kind), "statistics.collect": False, "inference.calibrate": False}
    criterion = "ent" if data.kind == "classification" else None
    return with_method(data, seed, criterion=criterion, **settings)


def _all_rows(data: Stream) -> tuple[Array, Array]:
    x = np.concatenate([month.train.x for month in data.months])
    return x.reshape(len(x), -1), np.concatenate([month.train.y for month in data.months])


def joint(data: Stream, seed: int) -> Record:
    """Models of all months together; an isolation forest of the same rows."""
    x, y = _all_rows(data)
    regression = data.kind == "regression"
    linear = RidgeCV(np.logspace(-3, 4, 20)) if regression else LogisticRegression(max_iter=500)
    trees = (ExtraTreesRegressor if regression else ExtraTreesClassifier)(200, random_state=seed)
    began, found = time.process_time(), Record()
    for name, model in (("linear", make_pipeline(StandardScaler(), linear)), ("forest", trees)):
        _tested(found, name, model.fit(x, y), data)
    found["seconds"] = (time.process_time() - began) / len(data.months)
    isolation = IsolationForest(random_state=seed).fit(x)
    known = isolation.score_samples(_flat(np.concatenate([month.test.x for month in data.months])))
    found["auroc"] = {
        name: auroc(torch.tensor(-known), torch.tensor(-isolation.score_samples(_flat(rows))))
        for name, rows in strangers(data, seed).items()
    }
    return found


def partial_fit(data: Stream, seed: int) -> Record:
    """Stochastic gradient descent month by month; all labels are known to it from the beginning."""
    regression = data.kind == "regression"
    scaler = StandardScaler().fit(_flat(data.months[0].train.x))
    labels = None if regression else np.unique(np.concatenate([month.train.y for month in data.months]))
    model = SGDRegressor(random_state=seed) if regression else SGDClassifier(loss="log_loss", random_state=seed)
    if regression and data.months[0].train.y.ndim > 1:
        model = MultiOutputRegressor(model)
    random, began, found = np.random.default_rng(seed), time.process_time(), Record()
    for month in data.months:
        for _ in range(EPOCHS):
            order = random.permutation(len(month.train.x))
            x, y = scaler.transform(_flat(month.train.x[order])), month.train.y[order]
            model.partial_fit(x, y) if regression else model.partial_fit(x, y, classes=labels)
    found["seconds"] = (time.process_time() - began) / len(data.months)
    _tested(found, "sgd", make_pipeline(scaler, model), data)
    return found


def _tested(found: Record, name: str, model: Any, data: Stream) -> None:
    for _, test in data.months:
        answers = model.predict(_flat(test.x))
        _add(found, name, answers if data.kind == "regression" else [])
        _add(found, f"{name} right", answers == test.y if data.kind == "classification" else [])


def _flat(x: Array) -> Array:
    return x.reshape(len(x), -1)


def _add(found: Record, name: str, values: Any) -> None:
    """Append values of test rows, as a file holds them; two targets are two values."""
    numbers = np.asarray(values).reshape(-1)
    found.setdefault(name, []).extend(
        numbers.astype(int).tolist() if numbers.dtype == bool else [float(f"{value:.7g}") for value in numbers]
    )


WAYS: Mapping[str, Callable[[Stream, int], Record]] = {
    "default": with_method,
    "joint": joint,
    "partial_fit": partial_fit,
    "exp-replay": lambda data, seed: with_method(data, seed, method="exp-replay"),
    "before": before,
}
