"""Training with auxiliary outputs: where they are, who may have them, and that only classes are answered."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from metareplay.batches.task import TaskBatches
from metareplay.benchmarks.base import Problem, Scenario, TaskData
from metareplay.errors import CheckpointError, ConfigError
from metareplay.estimators import ContinualClassifier
from metareplay.evaluation.evaluate import Evaluator
from metareplay.inference.predictive import predictive_outputs
from metareplay.learner.build import build_model
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.model import ContinualModel

SHAPE, CLASSES = (1, 4, 4), (2, 5, 3)
BOTH = {"training.rotations": True, "training.other": True}
QUICK = {"training.iterations": 3, "training.batch_size": 6, "inference.samples": 2}


def model_with(method: str, settings: dict[str, Any], shape: tuple[int, ...] = SHAPE) -> ContinualModel:
    config = build_config({"method": method, "network": "mlp-6"}, settings, "test")
    return build_model(config, "classification", Scenario.CLASS, shape, 16)


def learner_with(method: str, settings: dict[str, Any], problem: Problem = "classification") -> ContinualLearner:
    config = build_config({"method": method, "network": "mlp-6"}, {**QUICK, **settings}, "test")
    return ContinualLearner(config, problem, Scenario.CLASS, SHAPE)


def examples(count: int, classes: int, seed: int = 0) -> TaskData:
    generator = Generator().manual_seed(seed)
    return TaskData(torch.rand(count, *SHAPE, generator=generator), torch.arange(count) % classes)


LAYOUTS = [
    ("sp-dirac", {"training.rotations": True}, [(0, 2, 8), (0, 5, 20), (0, 3, 12)]),
    ("sp-dirac", {"training.other": 0.5}, [(0, 2, 3), (0, 5, 6), (0, 3, 4)]),
    ("pr-bbb", BOTH, [(0, 2, 9), (0, 5, 21), (0, 3, 13)]),
    ("ewc-multihead", BOTH, [(0, 2, 9), (9, 14, 30), (30, 33, 43)]),
    ("pr-dirac", {"heads": "multi", "training.other": 1}, [(0, 2, 3), (3, 8, 9), (9, 12, 13)]),
    ("ewc-growing", {}, [(0, 2, 2), (2, 7, 7), (7, 10, 10)]),
]


@pytest.mark.parametrize(("method", "settings", "bounds"), LAYOUTS)
def test_a_head_is_the_classes_and_auxiliary_outputs_follow_it(
    method: str, settings: dict[str, Any], bounds: list[tuple[int, int, int]], rng: Generator
) -> None:
    model, x = model_with(method, settings), torch.rand(4, *SHAPE, generator=rng)
    for classes in CLASSES:
        model.add_task(classes, generator=rng)
    assert model.outputs == max(stop for _, _, stop in bounds)
    for task, (start, middle, stop) in enumerate(bounds):
        assert model.heads[task] == slice(start, middle)
        assert model.auxiliary[task] == slice(middle, stop)
        if model.layout.one_softmax:  # the classes of all tasks so far compete, whichever is trained
            assert model.training_columns(task) == slice(0, bounds[-1][2])
            assert model.training_columns(task, auxiliary=False) == slice(0, bounds[-1][1])
        else:
            assert model.training_columns(task) == slice(start, stop)
            assert model.training_columns(task, auxiliary=False) == slice(start, middle)
        assert model.other_column(task) == (stop - 1 if "training.other" in settings else None)
        assert predictive_outputs(model, x, task, 2, generator=rng).shape[1:] == (4, middle - start)


@pytest.mark.parametrize("method", ["sp-dirac", "ewc-multihead"])
def test_a_restored_model_has_them_and_another_configuration_is_refused(method: str, rng: Generator) -> None:
    model = model_with(method, BOTH)
    for classes in CLASSES:
        model.add_task(classes, generator=rng)
    restored = model_with(method, BOTH)
    restored.restore(model.head_bounds(), model.tensors())
    assert (restored.heads, restored.auxiliary) == (model.heads, model.auxiliary)
    with pytest.raises(CheckpointError, match="another configuration"):
        model_with(method, {}).restore(model.head_bounds(), model.tensors())


@pytest.mark.parametrize("method", ["exp-replay", "ewc-growing", "ewc-shared", "vcl-growing"])
@pytest.mark.parametrize("key", BOTH)
def test_one_softmax_over_all_tasks_is_refused(method: str, key: str) -> None:
    words = f"{key} adds outputs .* {method} has one softmax over the classes of all tasks; remove it, or .* pr-bbb"
    with pytest.raises(ConfigError, match=words):
        model_with(method, {key: True})


def test_what_cannot_be_rotated_or_has_no_classes_is_refused() -> None:
    for shape in ((16,), (1, 4, 5), (4, 4)):
        with pytest.raises(ConfigError, match=r"needs square images of shape \(C, H, H\), but inputs have shape"):
            model_with("sp-dirac", {"training.rotations": True}, shape)
    with pytest.raises(ConfigError, match=r"training.other adds outputs .* regression has none; remove it"):
        learner_with("sp-dirac", {"training.other": 1}, "regression")


def test_copies_need_two_examples(rng: Generator) -> None:
    learner = learner_with("sp-dirac", {"training.other": 1})
    with pytest.raises(ConfigError, match=r"mixes the examples of a batch, so a task needs at least two"):
        learner.begin_task(examples(1, 1), 1)
    assert learner.num_tasks == 0
    learner.begin_task(examples(2, 1), 1)


def test_without_them_batches_and_outputs_are_as_before() -> None:
    learner = learner_with("sp-dirac", {"training.rotations": False, "training.other": 0})
    trainer = learner.begin_task(examples(20, 2), 2)
    assert type(trainer.jobs[0].batches) is TaskBatches
    assert (learner.model.outputs, learner.model.auxiliary) == (2, [slice(2, 2)])


@pytest.mark.parametrize("method", ["sp-bbb", "ewc-multihead", "pf-ssge", "pr-ensemble", "pr-dirac-cs"])
def test_every_kind_of_method_learns_with_them(method: str) -> None:
    """Also those that look at the data again after training: EWC's Fisher information, updates on coresets."""
    settings = {"strategy.coreset_size": 4, "strategy.finetune_iterations": 2} if method.endswith("-cs") else {}
    learner = learner_with(method, {**BOTH, **settings})
    for task in range(2):
        assert len(list(learner.begin_task(examples(20, 2 + task, task), 2 + task))) == 3
    if settings:
        assert len(list(learner.begin_update())) == 2
    assert learner.is_finite()
    x = torch.rand(5, *SHAPE)
    for task in range(2):
        answer = learner.predictor.predict(x, task)
        assert answer.probabilities.shape == (5, 5)  # type: ignore[union-attr]
        torch.testing.assert_close(answer.probabilities.sum(1), torch.ones(5, dtype=torch.float64))  # type: ignore[union-attr]


def test_with_the_task_given_only_its_classes_compete(rng: Generator) -> None:
    """Even where an auxiliary output is the highest, as it is for an upside-down image."""
    learner = learner_with("sp-dirac", {"training.rotations": True})
    learner.begin_task(examples(20, 2), 2)
    bias: Tensor = learner.model.task_map.theta(0).detach()
    bias[-8:] = torch.tensor([1.0, 0.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0])  # the last layer's bias
    bias[:-8] = 0.0
    with torch.no_grad():
        for parameter in learner.model.task_map.parameters():
            parameter.copy_(bias.view_as(parameter))
    data = examples(20, 2)
    assert Evaluator(learner.predictor).given(0, data) == 50.0  # class 0 always
    answer = learner.predictor.predict(data.x, 0)
    expected = torch.tensor([1.0, 0.0], dtype=torch.float64).softmax(0)
    torch.testing.assert_close(answer.probabilities, expected.expand(20, 2))  # type: ignore[union-attr]


def test_a_quadrant_of_the_plane_is_told_from_its_rotations() -> None:
    """An estimator learns images by where they are bright, and answers with its classes only."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 0.2, (60, 1, 6, 6)).astype(np.float32)
    y = np.arange(60) % 2
    x[y == 0, 0, 1, 1] += 1.0
    x[y == 1, 0, 2, 2] += 1.0
    settings = {"training.iterations": 150, "training.batch_size": 20, "training.rotations": True}
    rate = {"training.learning_rate": 0.005, "training.warm_up": 0}
    model = ContinualClassifier("sp-dirac", "mlp-20", settings={**settings, **rate})
    model.learn_task(x, y)
    assert model.score(x, y) == 1.0
    assert model.learner is not None
    turned = torch.from_numpy(x).rot90(1, (2, 3))
    outputs = model.learner.predictor.outputs(model.scaling.x(turned), 0, every_output=True)[0]  # (N, 8)
    assert (outputs.argmax(1) == torch.from_numpy(y) + 2).double().mean() > 0.95
