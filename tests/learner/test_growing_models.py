"""Tasks of more and more classes: the model grows, and survives saving, loading and failures as it is."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from metareplay import ContinualClassifier
from metareplay.learner.methods import METHODS
from metareplay.training.loop import TaskTrainer

NEEDS_OLD_DATA = ("joint",)
QUICK: dict[str, Any] = {"training.iterations": 6, "inference.samples": 4}


def blobs(classes: int, task: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    y = np.arange(30) % classes
    return np.random.default_rng(task).normal(size=(30, 4)) + y[:, None], y + 10 * task


def grown(method: str) -> ContinualClassifier:
    total = {"total_outputs": 23} if METHODS[method].shared_softmax else {}
    model = ContinualClassifier(method, "mlp-10", settings={**QUICK, **total})
    for task, width in enumerate((2, 3, 5)):
        model.learn_task(*blobs(width, task))
    return model


@pytest.mark.parametrize("method", METHODS)
def test_a_grown_model_is_loaded_bit_for_bit(method: str, tmp_path: Path) -> None:
    model, x = grown(method), blobs(2, 0)[0]
    model.save(tmp_path)
    again = ContinualClassifier.load(tmp_path)
    for task in range(3):
        assert np.array_equal(model.predict_proba(x, task), again.predict_proba(x, task))
    if method not in NEEDS_OLD_DATA:
        for each in (model, again):
            each.learn_task(*blobs(6, 3))
        assert np.array_equal(model.predict_proba(x, 3), again.predict_proba(x, 3))


@pytest.mark.parametrize("method", METHODS)
def test_a_failed_task_that_would_have_grown_leaves_the_model(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, untouched, x = grown(method), grown(method), blobs(2, 0)[0]

    def crash(trainer: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TaskTrainer, "_step", crash)
        with pytest.raises(KeyboardInterrupt):
            model.learn_task(*blobs(7, 3))
    for task in range(3):
        assert np.array_equal(model.predict_proba(x, task), untouched.predict_proba(x, task))
    for each in (model, untouched):
        each.learn_task(*blobs(7, 3))
    assert np.array_equal(model.predict_proba(x, 3), untouched.predict_proba(x, 3))
