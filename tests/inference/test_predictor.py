"""The one way from inputs to an answer, on models whose every answer can be worked out by hand."""

from collections.abc import Callable

import pytest
import torch
from torch import Generator

from metareplay.benchmarks.base import Scenario
from metareplay.errors import ConfigError
from metareplay.inference.criteria import predictive_variance
from metareplay.inference.predictor import AnyPredictor, ClassPredictor, RealPredictor
from metareplay.inference.settings import InferenceSettings
from metareplay.likelihoods import Categorical, Gaussian
from metareplay.model import ContinualModel
from metareplay.nets.mlp import MLP
from metareplay.posteriors.base import PosteriorFamily
from metareplay.posteriors.families.dirac import DiracFamily
from metareplay.posteriors.families.gaussian import GaussianFamily
from metareplay.task_maps.base import TaskMap
from metareplay.task_maps.direct import PerTaskParameters, SharedParameters
from metareplay.task_maps.heads import HeadLayout


def linear_model(
    inputs: int,
    family: PosteriorFamily,
    widths: list[int],
    *,
    task_map: Callable[[int], TaskMap] = PerTaskParameters,
    layout: HeadLayout = HeadLayout.SINGLE,
    total_outputs: int | None = None,
) -> ContinualModel:
    model = ContinualModel(
        lambda outputs: MLP((inputs,), (), outputs),
        family,
        lambda size, _: task_map(size),
        layout,
        Categorical() if widths[0] > 1 else Gaussian(0.1),
        lambda family, network, spec: None,
        total_outputs,
    )
    for width in widths:
        model.add_task(width, generator=Generator().manual_seed(0))
    return model


def set_theta(model: ContinualModel, task: int, values: list[float]) -> None:
    model.task_map.trained_parameters(task)[0].data = torch.tensor(values)


@pytest.fixture
def two_tasks() -> ContinualModel:
    """Task 0 predicts the sign of x, with margin 2|x|; task 1 always predicts class 0 of three, with margin 2.

    So task 0 is more confident where |x| > 1.
    """
    model = linear_model(1, DiracFamily(), [2, 3])
    set_theta(model, 0, [1.0, -1.0, 0.0, 0.0, 0.0, 0.0])  # weights (3, 1), then biases
    set_theta(model, 1, [0.0, 0.0, 0.0, 1.0, -1.0, -9.0])
    return model


@pytest.fixture
def two_lines() -> ContinualModel:
    """y = 2x + 1, certain; and y = -x, uncertain everywhere."""
    model = linear_model(1, GaussianFamily(), [1, 1])
    for task, (means, scale) in enumerate([([2.0, 1.0], 1e-6), ([-1.0, 0.0], 0.5)]):
        rho = float(torch.tensor(scale).expm1().log()) + 2.5  # softplus(rho - 2.5) = scale
        set_theta(model, task, [*means, rho, rho])
    return model


X = torch.tensor([[2.0], [-2.0], [0.1], [-3.0]])


def test_the_task_is_inferred_for_each_input(two_tasks: ContinualModel) -> None:
    answer = ClassPredictor(two_tasks, InferenceSettings(), seed=0).predict(X)
    assert answer.task.tolist() == [0, 0, 1, 0]
    assert answer.probabilities.shape == (4, 2 + 3)  # the classes of all tasks, one after another
    assert answer.probabilities.argmax(1).tolist() == [0, 1, 2, 1]
    assert (answer.probabilities > 0).tolist() == [[True] * 2 + [False] * 3] * 2 + [
        [False] * 2 + [True] * 3,
        [True] * 2 + [False] * 3,
    ]
    assert answer.scores is not None
    assert torch.equal(answer.scores.argmin(0), answer.task)
    p = torch.sigmoid(torch.tensor(4.0, dtype=torch.float64))
    torch.testing.assert_close(answer.total[0], -(p * p.log() + (1 - p) * (1 - p).log()), rtol=1e-6, atol=0)
    # ent scores the total uncertainty
    assert torch.equal(answer.total, answer.scores.gather(0, answer.task.unsqueeze(0)).squeeze(0))
    assert answer.epistemic.tolist() == [0.0] * 4  # of a point estimate


@pytest.mark.parametrize(("batch_wise", "tasks"), [(1, [0, 0, 1, 0]), (2, [0, 0, 1, 1]), (4, [1, 1, 1, 1])])
def test_the_task_is_inferred_for_batches(two_tasks: ContinualModel, batch_wise: int, tasks: list[int]) -> None:
    predictor = ClassPredictor(two_tasks, InferenceSettings(), seed=0)
    assert predictor.predict(X, batch_wise=batch_wise, criterion="conf").task.tolist() == tasks
    with pytest.raises(ConfigError, match="batch_wise=0"):
        predictor.predict(X, batch_wise=0)


@pytest.mark.parametrize("kind", [ClassPredictor, RealPredictor])
def test_a_given_task_is_the_only_one_that_is_asked(
    kind: type[AnyPredictor], two_tasks: ContinualModel, two_lines: ContinualModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor, asked = (
        kind(two_tasks if kind is ClassPredictor else two_lines, InferenceSettings(samples=4), seed=0),
        [],
    )
    outputs = kind.outputs
    monkeypatch.setattr(
        kind, "outputs", lambda self, x, task, **given: (asked.append(task), outputs(self, x, task, **given))[1]
    )
    answer = predictor.predict(X, 1)
    assert asked == [1]
    assert answer.task.tolist() == [1] * 4
    assert answer.scores is None
    assert sorted({1, *(predictor.predict(X), asked)[1]}) == [0, 1]


def test_a_lone_task_needs_no_criterion() -> None:
    model = linear_model(1, DiracFamily(), [1])
    predictor = RealPredictor(model, InferenceSettings(), seed=0)
    assert predictor.predict(X).task.tolist() == [0] * 4
    with pytest.raises(ConfigError, match="batch_wise=-1"):
        predictor.predict(X, batch_wise=-1)
    model.add_task(1, generator=Generator().manual_seed(0))
    with pytest.raises(ConfigError, match="the weights of this model do not vary; name the task"):
        predictor.predict(X)


def test_tasks_of_one_network_cannot_be_told_apart() -> None:
    model = linear_model(1, GaussianFamily(), [1, 1], task_map=SharedParameters)
    predictor = RealPredictor(model, InferenceSettings(), seed=0)
    with pytest.raises(ConfigError, match="all tasks of this model share one network; name the task"):
        predictor.predict(X, criterion="variance")
    answer, given = predictor.predict(X), predictor.predict(X, 1)  # and need not be
    assert torch.equal(answer.mean, given.mean)
    assert answer.task.tolist() == [1] * len(X)


def test_the_surer_regression_answers(two_lines: ContinualModel) -> None:
    predictor = RealPredictor(two_lines, InferenceSettings(samples=50), seed=0)
    answer = predictor.predict(X)
    assert answer.task.tolist() == [0] * 4
    torch.testing.assert_close(answer.mean, (2 * X + 1).double(), rtol=1e-4, atol=1e-4)
    other, outputs = predictor.predict(X, 1), predictor.outputs(X, 1)
    torch.testing.assert_close(other.std, outputs.double().std(0, correction=0))
    assert answer.scores is not None
    assert torch.equal(answer.scores[1], predictive_variance(outputs))


def test_one_softmax_names_the_task_by_the_class() -> None:
    model = linear_model(5, DiracFamily(), [2, 2], task_map=SharedParameters, layout=HeadLayout.SHARED, total_outputs=5)
    set_theta(model, 0, [*(9 * torch.eye(5)).flatten().tolist(), *[0.0] * 5])  # answers the input's largest element
    answer = ClassPredictor(model, InferenceSettings(), seed=0).predict(torch.eye(5))
    assert answer.probabilities.shape == (5, 4)  # the fifth output has no class yet
    assert answer.task[:4].tolist() == [0, 0, 1, 1]
    assert answer.probabilities[:4].argmax(1).tolist() == [0, 1, 2, 3]
    given = ClassPredictor(model, InferenceSettings(), seed=0).predict(torch.eye(5), 1)
    assert given.probabilities[:, :2].count_nonzero() == 0


def test_a_wrong_criterion_is_refused_also_where_the_task_is_given(two_tasks: ContinualModel) -> None:
    predictor = ClassPredictor(two_tasks, InferenceSettings(), seed=0)
    for name, words in (
        ("agree", "compares weight samples"),
        ("variance", "is for regression"),
        ("luck", "is unknown"),
    ):
        with pytest.raises(ConfigError, match=words):
            predictor.predict(X, 0, criterion=name)


def test_weight_samples_are_the_same_each_time(two_lines: ContinualModel) -> None:
    x = torch.ones(3, 1)
    predictor = RealPredictor(two_lines, InferenceSettings(samples=4), seed=0)
    first = predictor.outputs(x, 1)
    predictor.outputs(x, 0)
    assert torch.equal(predictor.outputs(x, 1), first)
    assert not torch.equal(RealPredictor(two_lines, InferenceSettings(samples=4), seed=1).outputs(x, 1), first)


OF_ALL, OF_CLASSES = ("mahalanobis", "relative", "pairs", "pca", "stats"), ("energy", "margin")
"""The criteria that read statistics."""
ALL, POINT = ["ent", "conf", "agree", "ku", "grad"], ["ent", "conf", "grad"]
CASES: list[tuple[PosteriorFamily, type[TaskMap], HeadLayout, type[AnyPredictor], list[str]]] = [
    (GaussianFamily(), PerTaskParameters, HeadLayout.SINGLE, ClassPredictor, ALL),
    (GaussianFamily(), SharedParameters, HeadLayout.MULTI, ClassPredictor, ALL),
    (DiracFamily(), PerTaskParameters, HeadLayout.SINGLE, ClassPredictor, POINT),
    (DiracFamily(), SharedParameters, HeadLayout.MULTI, ClassPredictor, POINT),
    (DiracFamily(), SharedParameters, HeadLayout.SINGLE, ClassPredictor, []),  # all tasks give the same answer
    (DiracFamily(), SharedParameters, HeadLayout.GROWING, ClassPredictor, []),  # no task to infer
    (GaussianFamily(), PerTaskParameters, HeadLayout.SINGLE, RealPredictor, ["variance"]),
    (DiracFamily(), PerTaskParameters, HeadLayout.SINGLE, RealPredictor, []),  # a point has no variance
]


@pytest.mark.parametrize(("family", "task_map", "layout", "kind", "expected"), CASES)
def test_which_criteria_apply(
    family: PosteriorFamily, task_map: type[TaskMap], layout: HeadLayout, kind: type[AnyPredictor], expected: list[str]
) -> None:
    model = linear_model(1, family, [2, 2], task_map=task_map, layout=layout)
    choose = task_map is PerTaskParameters or layout is HeadLayout.MULTI
    by_statistics = {*OF_ALL, *(OF_CLASSES if kind is ClassPredictor else ())}
    criteria = kind(model, InferenceSettings(), seed=0).criteria()
    assert [criterion.name for criterion in criteria if not criterion.reads_statistics] == expected
    assert {criterion.name for criterion in criteria if criterion.reads_statistics} == (
        by_statistics if choose else set()
    )
    assert kind(model, InferenceSettings(), seed=0, scenario=Scenario.TASK).criteria() == []
