"""Evaluation of models whose every answer can be worked out by hand."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Generator, nn

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.evaluation.evaluate import Evaluator, backward_transfer, during, final
from metareplay.evaluation.measures import Accuracy, SquaredError
from metareplay.evaluation.uncertainty import CONFIDENCE_BINS, EDGES, calibration_error
from metareplay.inference.adaptive import LOG_PREDICTIVE
from metareplay.inference.predictor import ClassPredictor, RealPredictor
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
    regression: bool = False,
    factory: Callable[[int], nn.Module] | None = None,
) -> ContinualModel:
    model = ContinualModel(
        factory or (lambda outputs: MLP((inputs,), (), outputs)),
        family,
        lambda size, _: task_map(size),
        layout,
        Gaussian(0.1) if regression else Categorical(),
        lambda family, network, spec: None,
    )
    for width in widths:
        model.add_task(width, generator=Generator().manual_seed(0))
    return model


def set_theta(model: ContinualModel, task: int, values: list[float]) -> None:
    model.task_map.trained_parameters(task)[0].data = torch.tensor(values)


def evaluator(model: ContinualModel, *, regression: bool = False, seed: int = 0, **settings: int) -> Evaluator:
    kind = RealPredictor if regression else ClassPredictor
    return Evaluator(kind(model, InferenceSettings(**settings), seed=seed))


def in_scenario(model: ContinualModel, scenario: Scenario) -> Evaluator:
    return Evaluator(ClassPredictor(model, InferenceSettings(batch_wise=1), seed=0, scenario=scenario))


def split(x: list[float], y: list[int]) -> TaskData:
    return TaskData(torch.tensor(x).unsqueeze(1), torch.tensor(y))


@pytest.fixture
def two_tasks() -> ContinualModel:
    """Task 0 predicts the sign of x, with margin 2|x|; task 1 always predicts 0, with margin 2.

    So task 0 is more confident where |x| > 1.
    """
    model = linear_model(1, DiracFamily(), [2, 2])
    set_theta(model, 0, [1.0, -1.0, 0.0, 0.0])  # weights (2, 1), then biases
    set_theta(model, 1, [0.0, 0.0, 1.0, -1.0])
    return model


TESTS = [
    # task 0 is right on three; the third looks like task 1, which would be right too
    split([2.0, -2.0, 0.5, -3.0], [0, 1, 0, 0]),
    # task 1 is right on four; the third looks like task 0, which would be right too
    split([0.1, 0.2, 5.0, -0.3, 0.4], [0, 1, 0, 0, 0]),
]


def test_accuracy_with_the_task_given(two_tasks: ContinualModel) -> None:
    judge = evaluator(two_tasks)
    assert [judge.given(task, test) for task, test in enumerate(TESTS)] == [75.0, 80.0]
    assert judge.given(1, TESTS[0]) == 75.0  # always 0


@pytest.mark.parametrize("criterion", ["ent", "conf"])
def test_a_wrong_task_is_a_wrong_answer(two_tasks: ContinualModel, criterion: str) -> None:
    actual = evaluator(two_tasks).inferred(TESTS)[criterion]
    assert actual.confusion == [[75.0, 25.0], [20.0, 80.0]]
    assert [sum(row) for row in actual.confusion] == [100.0, 100.0]
    assert actual.right_task == pytest.approx((75 + 80) / 2)
    assert actual.score == pytest.approx((50 + 60) / 2)  # of the right tasks' inputs, one each is misclassified


def test_batches_are_given_to_one_task(two_tasks: ContinualModel) -> None:
    actual = evaluator(two_tasks, batch_wise=100).inferred(TESTS)["ent"]
    assert actual.batch_wise == pytest.approx((75 + 80) / 2)  # each test set as a whole looks like its own task
    single = evaluator(two_tasks, batch_wise=1).inferred(TESTS)["ent"]
    assert single.batch_wise == single.score


def test_only_learned_tasks_compete(two_tasks: ContinualModel) -> None:
    assert evaluator(two_tasks).inferred([]) == {}
    first = evaluator(two_tasks).inferred(TESTS[:1])["ent"]
    assert first.confusion == [[75.0, 25.0]]
    assert first.score == 50.0


def test_classes_a_task_does_not_have_are_never_predicted() -> None:
    model = linear_model(1, DiracFamily(), [2, 3])
    set_theta(model, 0, [0.0, 0.0, 0.0, 0.0, 1.0, 9.0])  # the third output would win
    assert evaluator(model).predictor.predict(torch.zeros(4, 1), 0).probabilities.argmax(1).tolist() == [1] * 4
    assert evaluator(model).given(0, split([0.0, 0.0], [1, 0])) == 50.0


def gaussian_theta(means: list[float], scale: float) -> list[float]:
    rho = float(torch.tensor(scale).expm1().log()) + 2.5  # softplus(rho - 2.5) = scale
    return [*means, *([rho] * len(means))]


@pytest.fixture
def two_lines() -> ContinualModel:
    """y = 2x + 1, certain; and y = -x, uncertain everywhere."""
    model = linear_model(1, GaussianFamily(), [1, 1], regression=True)
    set_theta(model, 0, gaussian_theta([2.0, 1.0], 1e-6))
    set_theta(model, 1, gaussian_theta([-1.0, 0.0], 0.5))
    return model


def _line(x: list[float], y: list[float]) -> TaskData:
    return TaskData(torch.tensor(x).unsqueeze(1), torch.tensor(y).unsqueeze(1))


def test_regression_errors(two_lines: ContinualModel) -> None:
    judge = evaluator(two_lines, regression=True, samples=50)
    test = _line([0.0, 1.0, 2.0], [1.0, 4.0, 5.0])  # errors 0, 1, 0
    assert judge.given(0, test) == pytest.approx(1 / 3, rel=1e-4)


def test_regression_counts_the_error_of_the_inferred_task(two_lines: ContinualModel) -> None:
    tests = [_line([0.0, 1.0], [1.0, 4.0]), _line([0.0, 1.0], [0.0, -1.0])]
    actual = evaluator(two_lines, regression=True, samples=50).inferred(tests)
    assert list(actual) == ["variance"]
    assert actual["variance"].confusion == [[100.0, 0.0], [100.0, 0.0]]  # the certain task wins everywhere
    assert actual["variance"].right_task == 50.0
    assert actual["variance"].score == pytest.approx((1 / 2 + (1 + 16) / 2) / 2, rel=1e-4)
    assert actual["variance"].batch_wise is None


def test_regression_with_several_targets() -> None:
    model = linear_model(1, DiracFamily(), [2], regression=True)
    set_theta(model, 0, [0.0, 0.0, 1.0, 3.0])
    test = TaskData(torch.zeros(2, 1), torch.tensor([[1.0, 3.0], [1.0, 1.0]]))
    assert evaluator(model, regression=True).given(0, test) == pytest.approx((0 + 4 / 2) / 2)  # the mean over targets


def test_one_softmax_over_all_classes() -> None:
    model = linear_model(4, DiracFamily(), [2, 2], task_map=SharedParameters, layout=HeadLayout.GROWING)
    set_theta(model, 0, [*torch.eye(4).flatten().tolist(), 0.0, 0.0, 0.0, 0.0])  # answers the input's largest element
    one_hot = torch.eye(4)
    tests = [
        TaskData(one_hot[[0, 1, 1, 3]], torch.tensor([0, 1, 0, 1])),  # classes 0 and 1: right, right, wrong, wrong task
        TaskData(one_hot[[2, 3]], torch.tensor([0, 1])),  # classes 2 and 3
    ]
    judge = evaluator(model)
    assert judge.shared_softmax(tests) == (50 + 100) / 2
    assert judge.inferred(tests) == {}


def test_one_softmax_does_not_know_the_task_by_its_batch_norm_statistics() -> None:
    """Inputs are 5 or 7: the last task's statistics (mean 6) separate them, those of the first task (mean 0) do not."""
    make = lambda outputs: nn.Sequential(nn.BatchNorm1d(1, affine=False), nn.Linear(1, outputs))  # noqa: E731
    model = linear_model(1, DiracFamily(), [2, 2], task_map=SharedParameters, layout=HeadLayout.GROWING, factory=make)
    # the sign of the normalised input decides between classes 0 and 1
    set_theta(model, 0, [-1.0, 1.0, 0.0, 0.0, 0.0, 0.0, -9.0, -9.0])
    for buffers in model.buffers(1):
        next(value for name, value in buffers.items() if "mean" in name).fill_(6.0)
    first = TaskData(torch.tensor([[5.0], [7.0]]), torch.tensor([0, 1]))
    judge = evaluator(model)
    assert judge.shared_softmax([first, first]) == (100 + 0) / 2  # the second task's classes are 2 and 3


def test_no_shared_softmax_elsewhere(two_tasks: ContinualModel) -> None:
    assert evaluator(two_tasks).shared_softmax(TESTS) is None


def test_summaries_of_the_matrix() -> None:
    matrix = [[90.0], [80.0, 70.0], [60.0, 65.0, 100.0]]
    assert during(matrix) == pytest.approx((90 + 70 + 100) / 3)
    assert final(matrix) == 75.0
    assert backward_transfer(matrix) == pytest.approx((-30 - 5) / 2)
    assert backward_transfer([[90.0]]) is None


def test_hits_and_errors_are_counted_per_input() -> None:
    log_p = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]).log()
    assert Accuracy().values({LOG_PREDICTIVE: log_p}, torch.tensor([0, 0, 1])).tolist() == [100.0, 0.0, 100.0]
    statistics, y = {"mean": torch.tensor([[1.0, 2.0]])}, torch.tensor([[0.0, 4.0]])
    assert SquaredError().values(statistics, y).tolist() == [(1 + 4) / 2]
    # in the user's units
    assert SquaredError(torch.tensor([1.0, 10.0])).values(statistics, y).tolist() == [(1 + 400) / 2]


def test_where_tasks_share_their_classes_a_wrong_task_may_give_the_right_one(two_tasks: ContinualModel) -> None:
    tests = [split([-3.0, 0.5, -0.5, 2.0], [1, 0, 1, 0]), split([3.0, 0.5], [0, 0])]
    by_class, by_domain = (
        in_scenario(two_tasks, scenario).inferred(tests)["ent"] for scenario in (Scenario.CLASS, Scenario.DOMAIN)
    )
    assert by_class.right_task == by_domain.right_task
    assert by_class.confusion == by_domain.confusion
    # task 0: the two inputs that it is more confident about; task 1: the second
    assert by_class.score == pytest.approx((50 + 50) / 2)
    assert by_domain.score == pytest.approx((75 + 100) / 2)  # 0.5 is class 0 to both tasks, 3.0 as well
    assert by_domain.batch_wise == pytest.approx(by_domain.score)


def test_where_tasks_are_known_none_is_inferred(two_tasks: ContinualModel) -> None:
    assert in_scenario(two_tasks, Scenario.TASK).predictor.criteria() == []
    assert in_scenario(two_tasks, Scenario.TASK).inferred([split([1.0], [0])]) == {}


def test_calibration_with_the_task_given(two_tasks: ContinualModel) -> None:
    # always class 0 with probability sigmoid(2) = 0.88; four of five are right
    actual = evaluator(two_tasks).tested(1, TESTS[1])
    assert actual.score == 80.0
    assert actual.reliability is not None
    inputs, confidence, right = actual.reliability
    place = int(torch.sigmoid(torch.tensor(2.0)) * CONFIDENCE_BINS)
    assert (inputs[place], right[place]) == (5, 4)
    assert inputs.sum() == 5
    assert confidence[place] == pytest.approx(5 / (1 + math.exp(-2)))
    assert calibration_error(actual.reliability) == pytest.approx(100 * (1 / (1 + math.exp(-2)) - 0.8))


def test_regression_has_no_calibration() -> None:
    model = linear_model(1, DiracFamily(), [1], regression=True)
    assert evaluator(model, regression=True).tested(0, TaskData(torch.ones(2, 1), torch.ones(2, 1))).reliability is None


def test_scores_are_counted_apart_for_own_and_other_inputs(two_tasks: ContinualModel) -> None:
    counts = evaluator(two_tasks).inferred(TESTS)["conf"].counts  # (own or other, posterior, bins)
    assert counts.sum(-1).tolist() == [[4, 5], [5, 4]]  # each posterior judges its own inputs and the other task's
    constant = int(torch.bucketize(1 / (1 + math.exp(2)), EDGES, right=True)) - 1
    assert counts[:, 1, constant].tolist() == [5, 4]  # task 1 is equally confident about every input
    assert (counts[:, 0] > 0).sum() > 4
