"""Columns that are constant in the first task and vary later."""

from pathlib import Path

import numpy as np
import pytest

from metareplay import ContinualClassifier

QUICK = {"training.iterations": 60, "inference.samples": 5}


def month(seed: int, *, varies: bool) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(60, 3)) * [1.0, 1e-3, 500.0]
    if not varies:
        x[:, 2] = 40.0
    return x.astype(np.float32), (x[:, 1] > 0).astype(int)


def test_a_column_that_begins_to_vary_is_scaled_then_and_the_model_stores_it(tmp_path: Path) -> None:
    model = ContinualClassifier("pr-dirac", network="mlp-20", seed=0, settings=QUICK)
    first, second = month(0, varies=False), month(1, varies=True)
    model.learn_task(*first, name="april")
    before = model.scaling.x(model.scaling.tensors["x_mean"].unsqueeze(0))
    model.learn_task(*second, name="may")
    assert "x_open" not in model.scaling.tensors
    assert abs(float(model.scaling.tensors["x_scale"][2]) / 500 - 1) < 0.3
    assert (model.scaling.x(model.scaling.tensors["x_mean"].unsqueeze(0)) == before).all()
    assert model.score(*second, task="may") > 0.9  # the class is in the column with the smallest numbers
    model.save(tmp_path)
    again = ContinualClassifier.load(tmp_path)
    np.testing.assert_array_equal(again.predict(second[0]), model.predict(second[0]))


def test_a_task_that_fails_leaves_the_scaling_as_it_was() -> None:
    model = ContinualClassifier("pr-dirac", network="mlp-20", seed=0, settings=QUICK)
    model.learn_task(*month(0, varies=False), name="april")
    scaling, x = model.scaling, month(1, varies=True)[0]

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    assert model.learner is not None
    model.learner.begin_task = broken  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        model.learn_task(x, np.arange(60) % 2, name="may")
    assert model.scaling is scaling
