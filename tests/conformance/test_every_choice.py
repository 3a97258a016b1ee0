"""What every criterion must satisfy to choose between tasks, from samples, features or task statistics."""

from pathlib import Path

import numpy as np
import pytest
import torch

from metareplay.estimators import ContinualClassifier, ContinualRegressor
from metareplay.inference.criteria import CRITERIA
from metareplay.inference.predictor import AnyPredictor

TASKS, INPUTS = 3, 9


@pytest.fixture(scope="module", params=["classification", "regression"])
def model(request: pytest.FixtureRequest) -> ContinualClassifier | ContinualRegressor:
    """Three short tasks, far apart, each by a posterior with samples."""
    classifies = request.param == "classification"
    settings = {"training.iterations": 5, "inference.samples": 4}
    learner = (ContinualClassifier if classifies else ContinualRegressor)("sp-bbb", "mlp-6", settings=settings)
    rng = np.random.default_rng(0)
    for task in range(TASKS):
        x = rng.normal(size=(20, 2)) + 5 * task
        learner.learn_task(x, rng.integers(0, 2, 20) if classifies else np.sin(x[:, 0]))
    return learner


def predictor_of(model: ContinualClassifier | ContinualRegressor) -> AnyPredictor:
    assert model.learner is not None
    return model.learner.predictor


def scores(model: ContinualClassifier | ContinualRegressor, name: str, x: torch.Tensor) -> torch.Tensor:
    predictor = predictor_of(model)
    contest = predictor.contests([CRITERIA[name]], x)[0]
    return predictor.scores(contest, predictor.statistics(x, range(TASKS), {}, [contest]))


@pytest.mark.parametrize("name", CRITERIA)
def test_a_criterion_chooses_tasks(name: str, model: ContinualClassifier | ContinualRegressor, tmp_path: Path) -> None:
    """Finite scores of its own for every input, the same after storing, by which the predictor chooses."""
    if name not in {criterion.name for criterion in predictor_of(model).criteria()}:
        pytest.skip("it is for another problem")
    x = torch.randn(INPUTS, 2, generator=torch.Generator().manual_seed(1))
    together = scores(model, name, x)
    assert together.shape == (TASKS, INPUTS)
    assert together.isfinite().all()
    torch.testing.assert_close(scores(model, name, x[2:5]), together[:, 2:5])
    if isinstance(model, ContinualClassifier):
        raw = (x * model.scaling.tensors["x_scale"] + model.scaling.tensors["x_mean"]).numpy()
        again = scores(model, name, model.scaling.x(torch.from_numpy(raw)))
        assert model.predict_task(raw, criterion=name) == [model.task_names[task] for task in again.argmin(0)]
    model.save(tmp_path)
    assert torch.equal(scores(type(model).load(tmp_path), name, x), together)


@pytest.mark.parametrize("method", ["sp-dirac", "sp-bbb", "pr-bbb", "pr-dirac", "pr-ensemble", "vcl", "ewc-multihead"])
def test_the_default_tells_tasks_apart_by_their_statistics(method: str) -> None:
    """With separate, generated and shared weights, single ones, several and distributions."""
    learner = ContinualClassifier(method, "mlp-6", settings={"training.iterations": 30, "inference.samples": 4})
    rng = np.random.default_rng(0)
    tasks = [rng.normal(size=(60, 3)) + 6 * task for task in range(TASKS)]
    for x in tasks:
        learner.learn_task(x, rng.integers(0, 2, 60))
    assert predictor_of(learner).default_criterion == "stats"
    for task, x in enumerate(tasks):
        answer = learner.predict_full(x)
        assert np.mean([name == learner.task_names[task] for name in answer.task]) > 0.9
        assert answer.task_probabilities is not None
        np.testing.assert_allclose(answer.task_probabilities.sum(1), 1.0)
        assert answer.known is not None
        assert answer.known.mean() > 0.7
