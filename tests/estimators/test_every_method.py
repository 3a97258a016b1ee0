"""Every method through the front door, with tasks of more and more classes: saved, loaded, and with tasks that fail."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from metareplay import ContinualClassifier
from metareplay.learner.methods import METHODS
from metareplay.strategies.base import LossTerms
from metareplay.training.loop import TaskTrainer

NEEDS_OLD_DATA = ("joint",)
QUICK: dict[str, Any] = {"training.iterations": 6, "inference.samples": 4}
WITH_STATISTICS = ("pr-bbb", "sp-dirac", "vcl", "ebm")
"""One with a shared generator, one with separate tasks, one with a shared network, one whose inputs are its outputs."""
WIDTHS = (2, 3, 5)
"""Classes of the first tasks: outputs are added each time."""

pytestmark = [
    pytest.mark.parametrize("method", METHODS),
    pytest.mark.representative,  # every method as a learner: tests/conformance/test_every_method.py
]


def blobs(classes: int, task: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    y = np.arange(30) % classes
    return np.random.default_rng(task).normal(size=(30, 4)) + y[:, None], y + 10 * task


def grown(method: str) -> ContinualClassifier:
    """A model that has learned three tasks: a copy, unless it needs data that copies do not have."""
    return learned.__wrapped__(method) if method in NEEDS_OLD_DATA else deepcopy(learned(method))


@cache
def learned(method: str) -> ContinualClassifier:
    total = {"total_outputs": 30} if METHODS[method].outputs == "shared" else {}
    quick = {"inference.samples": 4} if METHODS[method].closed_form else QUICK
    quick = quick if method in WITH_STATISTICS else {**quick, "statistics.collect": False}
    model = ContinualClassifier(method, METHODS[method].network or "mlp-10", settings={**quick, **total})
    for task, width in enumerate(WIDTHS):
        model.learn_task(*blobs(width, task))
    return model


def assert_same_predictions(model: ContinualClassifier, other: ContinualClassifier) -> None:
    """Bit for bit, with every task given and with the task inferred."""
    x = blobs(2, 0)[0]
    assert model.task_names == other.task_names
    for task in (None, *range(len(model.task_names))):
        first, second = model.predict_full(x, task), other.predict_full(x, task)
        assert np.array_equal(first.probabilities, second.probabilities)
        assert np.array_equal(first.total, second.total)
        assert first.task == second.task


def test_a_task_has_its_own_classes_alone(method: str) -> None:
    model = grown(method)
    assert model.classes_.tolist() == [10 * task + label for task, width in enumerate(WIDTHS) for label in range(width)]
    for task, width in enumerate(WIDTHS):
        x, y = blobs(width, task)
        probabilities = model.predict_proba(x, task=task)
        columns = [model.classes_.tolist().index(label) for label in sorted(set(y.tolist()))]
        assert probabilities.shape == (30, 10)
        np.testing.assert_allclose(probabilities[:, columns].sum(1), 1.0, rtol=1e-9)
        assert np.delete(probabilities, columns, axis=1).max() == 0.0


def test_a_loaded_model_predicts_and_learns_on_as_if_never_saved(method: str, tmp_path: Path) -> None:
    model = grown(method)
    model.save(tmp_path)
    again = ContinualClassifier.load(str(tmp_path))
    assert (again.config, again.classes_.tolist()) == (model.config, model.classes_.tolist())
    assert_same_predictions(model, again)
    if method not in NEEDS_OLD_DATA:
        for either in (model, again):
            either.learn_task(*blobs(6, 3))
        assert_same_predictions(model, again)


def test_failed_tasks_leave_the_model_as_it_was(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if METHODS[method].closed_form:
        pytest.skip("it takes no steps")
    model, untouched, step = grown(method), grown(method), TaskTrainer._step
    # with new outputs, before a step; without, after some
    for classes, iteration in ((7, 0), (2, 3)):

        def crash(trainer: TaskTrainer, last: int = iteration) -> LossTerms:
            if trainer.iteration == last:
                raise KeyboardInterrupt
            return step(trainer)

        with monkeypatch.context() as patch:
            patch.setattr(TaskTrainer, "_step", crash)
            with pytest.raises(KeyboardInterrupt):
                model.learn_task(*blobs(classes, 3))
    assert_same_predictions(model, untouched)
    for either in (model, untouched):
        either.learn_task(*blobs(7, 3))
    assert_same_predictions(model, untouched)
