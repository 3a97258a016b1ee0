"""Answers of a predictor that chooses tasks by statistics: what they cost, and that they are the chosen task's."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import Problem, Scenario, TaskData
from metareplay.errors import ConfigError
from metareplay.inference.predictor import AnyPredictor, RealPredictor
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner

TASKS = 3


def examples(task: int, problem: Problem, rows: int = 90) -> TaskData:
    generator = Generator().manual_seed(task)
    y = torch.arange(rows) % 2
    x = torch.randn(rows, 4, generator=generator) + 30 * task + 2 * y.unsqueeze(1)  # far apart: no doubt which task
    return TaskData(x, y if problem == "classification" else x[:, :1].sin())


def learned(method: str, problem: Problem = "classification", **settings: Any) -> AnyPredictor:
    given = {"method": method, "network": "mlp-8", "training.iterations": 15, "inference.samples": 7, **settings}
    learner = ContinualLearner(build_config(given, {}, "test"), problem, Scenario.CLASS, (4,))
    for task in range(TASKS):
        data = examples(task, problem)
        list(learner.begin_task(data, 2 if problem == "classification" else 1))
        learner.finish_task(data)
    return learner.predictor


@pytest.fixture(scope="module", params=["classification", "regression"])
def predictor(request: pytest.FixtureRequest) -> AnyPredictor:
    return learned("pr-bbb", request.param)


@pytest.fixture
def x() -> Tensor:
    """Inputs of all tasks, in no order."""
    rows = torch.cat([examples(task, "classification", 20).x for task in range(TASKS)])
    return rows[torch.randperm(len(rows), generator=Generator().manual_seed(0))]


def test_weight_samples_are_drawn_for_the_chosen_task_alone(
    predictor: AnyPredictor, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, asked = type(predictor), list[tuple[int, int]]()
    outputs = kind.outputs

    def counted(self: AnyPredictor, x: Tensor, task: int, **given: Any) -> Tensor:
        asked.append((task, len(x)))
        return outputs(self, x, task, **given)

    monkeypatch.setattr(kind, "outputs", counted)
    answer = predictor.predict(x)
    chosen = answer.task.bincount(minlength=TASKS).tolist()
    assert min(chosen) > 0
    assert [pair for pair in asked if pair[1] > 1] == list(enumerate(chosen))
    assert sum(count for _, count in asked) <= len(x) + 1  # a row in doubt is answered by two tasks
    asked.clear()
    paper = "variance" if isinstance(predictor, RealPredictor) else "ent"
    predictor.predict(x, criterion=paper)
    assert asked == [(task, len(x)) for task in range(TASKS)]  # criteria by samples ask every task


def test_the_answer_by_a_criterion_without_probabilities_is_that_of_the_chosen_task(
    predictor: AnyPredictor, x: Tensor
) -> None:
    answer = predictor.predict(x, criterion="pca")
    assert answer.scores is not None
    assert torch.equal(answer.scores.argmin(0), answer.task)
    names = ("mean", "std") if isinstance(predictor, RealPredictor) else ("probabilities", "total", "aleatoric")
    for task in range(TASKS):
        rows = answer.task == task
        given = predictor.predict(x[rows], task)
        assert answer.known is not None
        assert given.known is not None
        known = answer.known[rows] & given.known  # others are corrected by how strange they are, to one task or to all
        assert known.double().mean() > 0.5
        for name in names:
            of_answer, alone = getattr(answer, name)[rows][known], getattr(given, name)[known]
            torch.testing.assert_close(of_answer, alone, rtol=1e-4, atol=1e-6)


def test_probabilities_of_tasks(predictor: AnyPredictor, x: Tensor) -> None:
    answer = predictor.predict(x)
    assert answer.task_probabilities is not None
    assert answer.task_probabilities.shape == (len(x), TASKS)
    torch.testing.assert_close(answer.task_probabilities.sum(1), torch.ones(len(x), dtype=torch.float64))
    assert torch.equal(answer.task_probabilities.argmax(1), answer.task)
    assert predictor.predict(x, 1).task_probabilities is None  # nothing was inferred
    together, alone = answer.task_probabilities, predictor.predict(x[3:4]).task_probabilities
    assert alone is not None
    torch.testing.assert_close(together[3:4], alone, rtol=1e-3, atol=1e-6)


def test_successive_inputs_that_belong_together(predictor: AnyPredictor) -> None:
    x = torch.cat([examples(task, "classification", 20).x for task in range(TASKS)])
    answer = predictor.predict(x, batch_wise=20)
    assert answer.task.tolist() == [task for task in range(TASKS) for _ in range(20)]
    assert answer.task_probabilities is None


@pytest.mark.parametrize(("criterion", "least"), [("stats", 0.9), ("pairs", 0.9), ("pca", 0.6)])
def test_tasks_far_apart_are_told_apart_in_few_columns(criterion: str, least: float) -> None:
    """A residual sees half of four directions: pca can only be well above chance."""
    predictor = learned("sp-dirac")
    for task in range(TASKS):
        right = predictor.predict(examples(task, "classification").x, criterion=criterion).task == task
        assert right.double().mean() > least


def test_adaptive_sampling_asks_the_chosen_task_alone(x: Tensor) -> None:
    plain = learned("sp-bbb").predict(x)
    adaptive = learned("sp-bbb", **{"inference.adaptive": 4.0, "inference.samples": 40}).predict(x)
    assert torch.equal(plain.task, adaptive.task)


def test_no_inputs() -> None:
    answer = learned("sp-dirac").predict(torch.zeros(0, 4))
    assert answer.task.shape == (0,)
    assert answer.task_probabilities is not None
    assert answer.task_probabilities.shape == (0, TASKS)
    assert answer.known is not None
    assert answer.known.shape == (0,)


def test_without_statistics_criteria_that_read_them_are_refused(x: Tensor) -> None:
    predictor = learned("sp-bbb", **{"statistics.collect": False})
    assert predictor.default_criterion == "ent"
    for name in ("stats", "pairs", "energy"):
        with pytest.raises(ConfigError, match=f"'{name}' needs statistics .* tasks 0, 1, 2 were learned without"):
            predictor.predict(x, criterion=name)


def test_inputs_that_are_asked_about_again_are_compared_once(
    predictor: AnyPredictor, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper, compared = predictor.keeper, list[int]()
    gather = type(keeper).evidence

    def counted(self: Any, x: Tensor, **given: Any) -> Any:
        compared.append(len(x))
        return gather(self, x, **given)

    monkeypatch.setattr(type(keeper), "evidence", counted)
    alone = predictor.predict(x)
    with predictor.remembering():
        predictor.contests(predictor.criteria(), x)
        again = predictor.predict(x)
        assert len(compared) == 2  # once before, once within
        predictor.predict(x.clone())  # a benchmark may make its test inputs anew each time
        assert len(compared) == 2
        predictor.predict(x + 1)
        assert len(compared) == 3
    assert alone.task_probabilities is not None
    assert again.task_probabilities is not None
    assert torch.equal(alone.task_probabilities, again.task_probabilities)
    predictor.predict(x)
    assert len(compared) == 4
