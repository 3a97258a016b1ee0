import numpy as np
import pytest
import torch

from metareplay.benchmarks.base import TaskData, TaskInfo
from metareplay.estimators import ContinualClassifier, ContinualRegressor
from metareplay.evaluation.answers import answer_quality, shared_labels
from metareplay.evaluation.evaluate import Evaluator

QUICK = {"training.iterations": 40, "inference.samples": 10}


def test_labels_that_tasks_share() -> None:
    assert shared_labels([TaskInfo("a", (0, 1)), TaskInfo("b", (1, 2))])
    assert not shared_labels([TaskInfo("a", (0, 1)), TaskInfo("b", (2,))])
    assert not shared_labels([])


def test_labels_and_their_probabilities_are_tested_as_a_user_gets_them() -> None:
    random = np.random.default_rng(0)
    model, tests = ContinualClassifier("sp-bbb", "mlp-8", settings=QUICK), []
    for labels in ((0, 1), (1, 2)):
        x = random.normal(size=(60, 2)).astype(np.float32) + np.array([0, 2 * labels[0]], dtype=np.float32)
        y = np.where(x[:, 0] > 0, labels[0], labels[1])
        model.learn_task(x, y)
        tests.append((x, y))
    assert model.learner is not None
    predictor = model.learner.predictor
    scaled = [
        TaskData(model._inputs(x), torch.tensor(np.searchsorted(model.tasks[task].classes, y)))
        for task, (x, y) in enumerate(tests)
    ]
    quality = answer_quality(predictor, scaled, model.tasks)
    assert quality is not None
    right = [100 * np.mean(model.predict(x) == y) for x, y in tests]
    assert quality.label_accuracy == pytest.approx(np.mean(right))
    assert 0 <= quality.calibration_error < 50  # type: ignore[operator]
    by_criterion = Evaluator(predictor, tasks=model.tasks).inferred(scaled)
    for name, inferred in by_criterion.items():
        if name != "stats":  # which mixes
            hits = [100 * np.mean(model.predict(x, criterion=name) == y) for x, y in tests]
            assert inferred.label_score == pytest.approx(np.mean(hits), abs=2)
    assert Evaluator(predictor).inferred(scaled)["ent"].label_score is None


def test_errors_and_coverage_of_a_regression() -> None:
    random = np.random.default_rng(0)
    model, x = ContinualRegressor("sp-bbb", "mlp-8", settings=QUICK), random.normal(size=(60, 1)).astype(np.float32)
    y = 5 * x[:, 0] + random.normal(size=60)
    model.learn_task(x, y)
    assert model.learner is not None
    test = TaskData(model._inputs(x), model.scaling.y(torch.tensor(y, dtype=torch.float32).unsqueeze(1)))
    quality = answer_quality(model.learner.predictor, [test], target_scale=model.scaling.tensors["y_scale"])
    assert quality is not None
    assert quality.rmse_given == pytest.approx(np.sqrt(np.mean((model.predict(x, 0) - y) ** 2)), rel=1e-4)
    assert quality.r2_given == pytest.approx(model.score(x, y, 0), rel=1e-4)
    assert quality.coverage_given > 80  # type: ignore[operator]
