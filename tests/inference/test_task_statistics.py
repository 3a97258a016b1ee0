"""A criterion from outside the package that stores class means of features, and chooses tasks by them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.errors import CheckpointError, ConfigError
from metareplay.estimators import ContinualClassifier, ContinualRegressor
from metareplay.evaluation.evaluate import Evaluator
from metareplay.experiments.plan import Plan
from metareplay.experiments.run import Run
from metareplay.inference.criteria import CRITERIA, Criterion, Evidence, FeatureRequest, LearnedTask, register_criterion
from metareplay.inference.criteria.base import Stored
from metareplay.inference.task_statistics import TaskStatistics
from metareplay.interrupts import Interrupted
from metareplay.learner.config import build_config

LAYER = "layers.0"
SETTINGS: dict[str, Any] = {"training.iterations": 20, "inference.samples": 3}


def class_means(learned: LearnedTask) -> Sequence[Stored]:
    """Class means of the first layer's features (C, F); for earlier tasks also how many tasks came after them."""
    features, y = learned.features(learned.data.x, learned.task)[LAYER][0], learned.data.y  # (S, N, F) -> (N, F)
    means = torch.stack([features[y == label].mean(0) for label in y.unique()])
    before = [{**stored, "later": stored["later"] + 1} for stored in learned.stored]
    return [*before, {"means": means, "later": torch.zeros(())}]


def nearest_mean(evidence: Evidence) -> Tensor:
    """The squared distance to the nearest mean of the task: (T, B)."""
    pairs = zip(evidence.features, evidence.stored, strict=True)
    return torch.stack(
        [torch.cdist(features[LAYER][0], stored["means"]).amin(1).square().double() for features, stored in pairs]
    )


@pytest.fixture
def means() -> Iterator[Criterion]:
    request = FeatureRequest(layers=(LAYER,))
    yield register_criterion(
        Criterion(
            name="means", description="nearest class mean", compare=nearest_mean, features=request, fit=class_means
        )
    )
    CRITERIA.remove("means")


def blobs(task: int, rows: int = 40) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    rng = np.random.default_rng(task)
    y = np.arange(rows) % 2
    return rng.normal(size=(rows, 2), scale=0.3) + 6 * np.array([task, -task]) + y[:, None], y + 2 * task


def learned(method: str = "sp-dirac", **settings: Any) -> ContinualClassifier:
    model = ContinualClassifier(method, "mlp-8", settings={**SETTINGS, **settings})
    for task in range(3):
        model.learn_task(*blobs(task))
    return model


@pytest.mark.usefixtures("means")
@pytest.mark.parametrize("method", ["sp-dirac", "pr-bbb", "sp-ensemble"])
def test_tasks_are_chosen_by_what_was_stored_also_after_loading(method: str, tmp_path: Path) -> None:
    model = learned(method)
    x, truth = (
        np.concatenate([blobs(task)[0] for task in range(3)]),
        [name for name in model.task_names for _ in range(40)],
    )
    tasks = model.predict_task(x, criterion="means")
    assert np.mean([one == other for one, other in zip(tasks, truth, strict=True)]) > 0.95
    model.save(tmp_path)
    again = ContinualClassifier.load(tmp_path)
    assert model.learner is not None
    assert again.learner is not None
    stored = [each.learner.predictor.task_statistics.tensors() for each in (model, again) if each.learner is not None]
    own = {name for name in stored[0] if name.startswith("means.")}
    assert own == {f"means.{task}.{key}" for task in range(3) for key in ("means", "later")}
    # what earlier tasks stored was updated
    assert [int(stored[0][f"means.{task}.later"]) for task in range(3)] == [
        2,
        1,
        0,
    ]
    assert all(torch.equal(stored[1][name], tensor) for name, tensor in stored[0].items())
    one, other = (each.predict_full(x, criterion="means") for each in (model, again))
    assert one.task == other.task
    assert np.array_equal(one.probabilities, other.probabilities)
    again.learn_task(*blobs(3))  # goes on where it stopped
    assert again.predict_task(blobs(3)[0], criterion="means").count("task-3") > 35


@pytest.mark.usefixtures("means")
def test_adaptive_sampling_settles_the_classes_alone() -> None:
    x = np.concatenate([blobs(task)[0] for task in range(3)])
    plain, adaptive = (
        learned("sp-bbb", **given) for given in ({}, {"inference.samples": 40, "inference.adaptive": 3.0})
    )
    assert plain.predict_task(x, criterion="means") == adaptive.predict_task(x, criterion="means")


@pytest.mark.usefixtures("means")
def test_a_run_stores_and_resumes_it_bit_for_bit(tmp_path: Path) -> None:
    given = {
        "benchmark": "modes-2d",
        "method": "sp-bbb",
        "network": "mlp-5",
        "training.iterations": 6,
        "training.checkpoint_every": 4,
    }
    config = build_config({**given, "inference.samples": 3}, {}, "test")
    whole = Run(Plan.of(config, tmp_path / "whole")).execute()
    stops = iter([False] * 8 + [True])  # in the second task
    with pytest.raises(Interrupted):
        Run(Plan.of(config, tmp_path / "resumed"), should_stop=lambda: next(stops, True)).execute()
    resumed = Run(Plan.of(config, tmp_path / "resumed")).execute(resume=True)
    assert whole.tinfer_final == resumed.tinfer_final
    assert whole.tinfer_final is not None
    assert whole.tinfer_final["means"] is not None
    one, other = (load_file(next((tmp_path / name / "model").glob("*.safetensors"))) for name in ("whole", "resumed"))
    assert one.keys() == other.keys() >= {f"criteria.means.{task}.means" for task in range(3)}
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_tasks_learned_without_the_criterion_are_named() -> None:
    model = learned()
    register_criterion(Criterion(name="late", description="none", compare=nearest_mean, fit=class_means))
    try:
        with pytest.raises(ConfigError, match="tasks 0, 1, 2 were learned without them"):
            model.predict(blobs(0)[0], criterion="late")
        x, y = blobs(0)
        assert model.learner is not None
        inferred = Evaluator(model.learner.predictor).inferred(
            [TaskData(torch.from_numpy(x).float(), torch.from_numpy(y))]
        )
        assert "late" not in inferred  # and nothing else fails
        assert "ent" in inferred
    finally:
        CRITERIA.remove("late")


def test_a_criterion_that_fails_leaves_the_model_as_it_was(means: Criterion) -> None:
    model = learned()
    assert model.learner is not None
    before = {name: tensor.clone() for name, tensor in model.learner.tensors(training=False).items()}
    CRITERIA.remove("means")
    register_criterion(Criterion(name="means", description="none", compare=nearest_mean, fit=lambda learned: []))
    with pytest.raises(ConfigError, match="returned statistics of 0 tasks, but 4 have been learned"):
        model.learn_task(*blobs(3))
    after = model.learner.tensors(training=False)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.usefixtures("means")
def test_criteria_of_another_problem_store_nothing() -> None:
    settings = {**SETTINGS, "statistics.collect": False}
    model = ContinualRegressor("sp-bbb", "mlp-5", settings=settings).learn_task(
        np.ones((9, 1)) * np.arange(9)[:, None], np.arange(9.0)
    )
    assert model.learner is not None
    assert model.learner.predictor.task_statistics.tensors() == {}


def test_a_dropped_task_takes_its_statistics_along() -> None:
    statistics, numbers = TaskStatistics(), torch.arange(3.0)
    statistics.put("one", [{"a": numbers}, {}, {"a": numbers + 1}])
    statistics.drop(0)
    assert statistics.of("one", 3) == ({}, {"a": statistics.of("one", 2)[1]["a"]}, {})
    assert list(statistics.tensors()) == ["one.1.a"]
    again = TaskStatistics()
    again.restore(statistics.tensors())
    assert torch.equal(again.of("one", 2)[1]["a"], numbers + 1)
    with pytest.raises(CheckpointError, match="does not name a task"):
        again.restore({"one.a": numbers})
