"""Faster predictions through the front door: adaptive sampling, moments, bfloat16."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError
from metareplay.evaluation.evaluate import Evaluator

Array = npt.NDArray[np.float64]
SETTINGS: dict[str, Any] = {"training.iterations": 80, "training.learning_rate": 0.03, "inference.samples": 40}


def blobs(task: int) -> tuple[Array, npt.NDArray[np.int64]]:
    y = np.arange(60) % 2
    x = 0.4 * np.random.default_rng(task).normal(size=(60, 2)) + np.stack([4.0 * task + 0 * y, 2.0 * y - 1], axis=1)
    return x, y + 2 * task


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    model = ContinualClassifier("sp-bbb", "mlp-10", settings=SETTINGS)
    for task in range(3):
        model.learn_task(*blobs(task))
    model.save(path)
    return path


@pytest.fixture(scope="module")
def x() -> Array:
    return np.concatenate([blobs(task)[0] for task in range(3)])


def loaded(folder: Path, **settings: Any) -> ContinualClassifier:
    return ContinualClassifier.load(folder, settings={f"inference.{key}": value for key, value in settings.items()})


@pytest.mark.parametrize("criterion", ["ent", "agree", "ku", "grad"])
def test_infinite_patience_predicts_the_same_bit_for_bit(criterion: str, folder: Path, x: Array) -> None:
    plain, patient = (
        model.predict_full(x, criterion=criterion) for model in (loaded(folder), loaded(folder, adaptive=1e9))
    )
    assert plain.task == patient.task
    assert np.array_equal(plain.probabilities, patient.probabilities)
    assert np.array_equal(plain.epistemic, patient.epistemic)


@pytest.mark.parametrize(
    "way", [{"adaptive": 4.0}, {"predictive": "moments"}, {"autocast": True}], ids=["adaptive", "moments", "bfloat16"]
)
def test_faster_ways_decide_alike(way: dict[str, Any], folder: Path, x: Array) -> None:
    plain, fast = loaded(folder), loaded(folder, **way)
    # 40 weight samples alone agree in 80 % with 2000
    expected = loaded(folder, samples=2000) if "predictive" in way else plain
    assert np.mean(expected.predict(x) == fast.predict(x)) >= 0.9
    assert np.mean(plain.predict(x[:60], task=0) == fast.predict(x[:60], task=0)) >= 0.98
    assert fast.predict_task(x, batch_wise=60) == plain.predict_task(x, batch_wise=60)
    actual = fast.predict_full(x)
    assert np.abs(actual.probabilities.sum(1) - 1).max() < 1e-9
    assert np.abs(actual.total - plain.predict_full(x).total).mean() < 0.05


@pytest.mark.parametrize("way", [{"adaptive": 4.0}, {"predictive": "moments"}], ids=["adaptive", "moments"])
def test_the_evaluation_takes_the_same_way(way: dict[str, Any], folder: Path) -> None:
    tests = [
        TaskData(torch.from_numpy(x).float(), torch.from_numpy(y % 2)) for x, y in (blobs(task) for task in range(3))
    ]
    judges = [
        Evaluator(model.learner.predictor)
        for model in (loaded(folder), loaded(folder, **way))
        if model.learner is not None
    ]
    plain, fast = (judge.inferred(tests) for judge in judges)
    assert plain.keys() == fast.keys()
    for name, actual in fast.items():
        assert abs(actual.score - plain[name].score) < 8, name
    assert abs(judges[1].given(0, tests[0]) - judges[0].given(0, tests[0])) < 4


def test_loading_changes_nothing_but_inference(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"only inference\.\* settings can"):
        ContinualClassifier.load(folder, settings={"training.iterations": 3})
    with pytest.raises(ConfigError, match="predictive"):
        loaded(folder, predictive="luck")
    with pytest.raises(ConfigError, match="needs no weight samples"):
        loaded(folder, predictive="moments", adaptive=3.0)
    assert loaded(folder, samples=7).config.inference.samples == 7


def test_regression() -> None:
    x = np.linspace(-1, 1, 40)[:, None]
    with pytest.raises(ConfigError, match="regression has none"):
        ContinualRegressor("sp-bbb", "mlp-5", settings={**SETTINGS, "inference.adaptive": 3.0}).learn_task(x, x[:, 0])
    models = [
        ContinualRegressor("sp-bbb", "mlp-5", settings={**SETTINGS, "inference.predictive": way})
        for way in ("samples", "moments")
    ]
    plain, moments = (model.learn_task(x, x[:, 0]).predict_full(x) for model in models)
    assert np.abs(plain.mean - moments.mean).max() < 0.3 * plain.std.mean() + 0.05
    assert 0.6 < float(np.mean(moments.std / plain.std)) < 1.6
