"""The criterion other: it reads auxiliary outputs, and applies only to models that have them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from metareplay.errors import ConfigError
from metareplay.estimators import ContinualClassifier
from metareplay.inference.criteria import CRITERIA, criteria_for, criterion_named

SETTINGS = {"training.iterations": 300, "training.batch_size": 40, "training.other": 1, "inference.samples": 5}


def rows_on_a_line(task: int, count: int = 80) -> tuple[NDArray[Any], NDArray[Any]]:
    """A task's rows lie near a line of its own in eight dimensions, equally wide in each; the class is the side."""
    direction = np.array([[1] * 8, [1, -1] * 4, [1, 1, -1, -1] * 2])[task]
    rng = np.random.default_rng(task)
    side = np.arange(count) % 2
    position = (2 * side - 1) * rng.uniform(1, 2, count)
    return position[:, None] * direction + 0.05 * rng.normal(size=(count, 8)), side


@pytest.fixture(scope="module")
def trained() -> ContinualClassifier:
    model = ContinualClassifier("sp-bbb", "mlp-30-30", settings={**SETTINGS, "posterior.prior_scale": 1e-3})
    for task in range(3):
        model.learn_task(*rows_on_a_line(task))
    return model


def test_it_tells_tasks_apart(trained: ContinualClassifier, tmp_path: Path) -> None:
    rows = [rows_on_a_line(task)[0] for task in range(3)]
    chosen = [trained.predict_task(x, criterion="other") for x in rows]
    names = trained.task_names
    right = [np.mean([name == names[task] for name in tasks]) for task, tasks in enumerate(chosen)]
    assert np.mean(right) > 0.9
    trained.save(tmp_path)
    assert ContinualClassifier.load(tmp_path).predict_task(rows[1], criterion="other") == chosen[1]


def test_its_score_is_the_probability_of_all_auxiliary_outputs(trained: ContinualClassifier) -> None:
    assert trained.learner is not None
    predictor, x = trained.learner.predictor, torch.randn(7, 8, generator=torch.Generator().manual_seed(0))
    contest = predictor.contests([CRITERIA["other"]], x)[0]
    for task, scores in enumerate(predictor.scores(contest, [])):
        outputs = predictor.outputs(x, task, every_output=True).double()  # (S, N, 3)
        assert trained.learner.model.other_column(task) == 2
        torch.testing.assert_close(scores, outputs.softmax(-1).mean(0)[:, 2])
        torch.testing.assert_close(predictor.log_other(x, task).exp(), scores)


def test_adaptive_sampling_leaves_it_alone(trained: ContinualClassifier, tmp_path: Path) -> None:
    trained.save(tmp_path)
    adaptive = ContinualClassifier.load(tmp_path, settings={"inference.adaptive": 4.0})
    x = rows_on_a_line(2)[0]
    assert adaptive.predict_task(x, criterion="other") == trained.predict_task(x, criterion="other")


def test_it_applies_only_to_models_with_auxiliary_outputs(trained: ContinualClassifier) -> None:
    assert trained.learner is not None
    assert CRITERIA["other"] in trained.learner.predictor.criteria()
    assert "other" not in {criterion.name for criterion in criteria_for("classification")}
    with pytest.raises(ConfigError, match=r"needs outputs .* trained without them; choose ent, .*training.other=1"):
        criterion_named("other")
