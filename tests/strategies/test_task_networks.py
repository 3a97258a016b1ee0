"""A network that infers tasks: it tells them apart without old examples, and follows what becomes of the tasks."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError
from metareplay.estimators import ContinualClassifier, ContinualRegressor
from metareplay.evaluation.assess import assess
from metareplay.strategies.task_networks import TaskNetworkReplay

SETTINGS: dict[str, Any] = {
    "training.iterations": 80,
    "training.batch_size": 32,
    "training.learning_rate": 0.01,
    "training.cosine": False,
    "training.early_stopping": None,
    "strategy.generator_hidden": [16],
    "strategy.latent_size": 2,
    "strategy.generator_rate": 0.01,
    "strategy.task_hidden": [16],
    "strategy.task_rate": 0.01,
}
TASKS = 3


def inputs(task: int, count: int = 80) -> NDArray[np.float64]:
    """Tasks are far apart, in no order along a line."""
    centre = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0], [6.0, 6.0]])[task]
    return centre + np.random.default_rng(task).normal(size=(count, 2))


def labels(task: int, x: NDArray[np.float64]) -> list[str]:
    return [f"{task}{'ab'[int(row[0] > x[:, 0].mean())]}" for row in x]


@pytest.fixture(scope="module")
def model() -> ContinualClassifier:
    learned = ContinualClassifier("hnet-tir", "mlp-8", settings=SETTINGS)
    for task in range(TASKS):
        x = inputs(task)
        learned.learn_task(x, labels(task, x), name=f"t{task}")
    return learned


@pytest.fixture
def stored(model: ContinualClassifier, tmp_path: Path) -> ContinualClassifier:
    """A copy that a test may change."""
    model.save(tmp_path)
    return ContinualClassifier.load(tmp_path)


def strategy_of(model: ContinualClassifier | ContinualRegressor) -> TaskNetworkReplay:
    assert model.learner is not None
    return cast(TaskNetworkReplay, model.learner.strategy)


def right_task(model: ContinualClassifier | ContinualRegressor, task: int, name: str, **options: Any) -> float:
    chosen = model.predict_full(inputs(task), **options).task
    return float(np.mean([each == name for each in chosen]))


def test_tasks_are_told_apart_without_their_examples(model: ContinualClassifier) -> None:
    assert model.learner is not None
    assert model.learner.predictor.default_criterion == "task-net"
    for task in range(TASKS):
        assert right_task(model, task, f"t{task}") > 0.85
        assert right_task(model, task, f"t{task}", criterion="stats") > 0.85
    answer = model.predict_full(inputs(0))
    assert answer.task_probabilities is not None
    np.testing.assert_allclose(answer.task_probabilities.sum(1), 1.0)


def test_its_own_probabilities_are_assessed(model: ContinualClassifier) -> None:
    """Those of the default criterion, not of statistics."""
    assert model.learner is not None
    predictor = model.learner.predictor
    tests = [TaskData(model._inputs(inputs(task)), torch.zeros(80, dtype=torch.int64)) for task in range(TASKS)]
    found = assess(predictor, tests, seed=0)
    assert found is not None
    assert found.brier is not None
    for task, test in enumerate(tests):
        p = predictor.log_tasks(test.x).exp().T  # (N, T)
        expected = (p - torch.eye(TASKS, dtype=torch.float64)[task]).square().sum(1).mean()
        assert found.brier[task] == pytest.approx(float(expected))


def test_every_task_counts_the_same(model: ContinualClassifier) -> None:
    """However many decoders it has."""
    strategy, seen = strategy_of(model), []
    strategy.decoders.thetas = strategy.decoders.hypernet.thetas([0, 1]).detach()  # as in the third task
    copied = TaskNetworkReplay(strategy.posteriors, strategy.decoders, strategy.network)
    copied.sources = [0, 1, 1]  # as if the third had been an update of the second
    learn = strategy.network.learn
    try:
        strategy.network.learn = lambda x, task, weights: seen.append((task, weights))  # type: ignore[method-assign]
        copied._tell_apart(torch.randn(30, 2), torch.Generator().manual_seed(0))
    finally:
        strategy.network.learn, strategy.decoders.thetas = learn, None  # type: ignore[method-assign]
    task, weights = seen[0]
    share = torch.zeros(2).scatter_add_(0, task, weights)
    torch.testing.assert_close(share, torch.tensor([0.5, 0.5]), rtol=0, atol=1e-6)


def test_a_removed_task_leaves_the_others(stored: ContinualClassifier) -> None:
    assert stored.learner is not None
    x = torch.from_numpy(inputs(2)).float()
    before = stored.learner.predictor.log_tasks(x)
    stored.remove_task("t1")
    after = stored.learner.predictor.log_tasks(x)
    torch.testing.assert_close(after, before[[0, 2]].log_softmax(0))
    assert strategy_of(stored).sources == [0, 1]
    assert strategy_of(stored).decoders.hypernet.num_tasks == 2
    x = inputs(3)
    stored.learn_task(x, labels(3, x), name="t3")
    for task in (0, 2, 3):
        assert right_task(stored, task, f"t{task}") > 0.85


def test_an_updated_task_is_replayed_from_two_decoders(stored: ContinualClassifier) -> None:
    x = inputs(3)
    stored.update_task("t1", x, labels(1, x))
    assert strategy_of(stored).sources == [0, 1, 2, 1]
    assert strategy_of(stored).told_apart() == TASKS
    assert right_task(stored, 3, "t1") > 0.85  # what the task saw last
    assert right_task(stored, 1, "t1") > 0.7  # and what it saw first
    assert right_task(stored, 0, "t0") > 0.7


def test_targets_of_regression_need_no_classes() -> None:
    learned = ContinualRegressor("hnet-tir", "mlp-8", settings={**SETTINGS, "statistics.collect": False})
    for task in range(2):
        x = inputs(task)
        learned.learn_task(x, np.sin(x[:, 0]), name=f"t{task}")
    for task in range(2):
        assert right_task(learned, task, f"t{task}") > 0.85


def test_the_criterion_is_refused_where_no_network_infers_tasks() -> None:
    learned = ContinualClassifier("sp-dirac", "mlp-4", settings={"training.iterations": 2})
    for task in range(2):
        learned.learn_task(inputs(task), labels(task, inputs(task)))
    with pytest.raises(ConfigError, match="learn with the method hnet-tir"):
        learned.predict(inputs(0), criterion="task-net")
