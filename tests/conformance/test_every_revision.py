"""Tasks of every method can be removed, and trained further on new data; what is refused is refused with the reason."""

from functools import cache

import pytest
import torch
from torch import Tensor

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.errors import ConfigError
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.methods import METHODS
from metareplay.seeding import generator_for

SMALL = {"hypernet.hidden": (6,), "hypernet.task_embedding_size": 3, "hypernet.chunk_embedding_size": 2}
SHARED = {name for name, method in METHODS.items() if method.task_map_part.shared}
SEPARATE = {name for name, method in METHODS.items() if method.task_map_part.separate}
QUICK = (
    *("pr-dirac", "pr-bbb", "pr-ssge", "pr-flow", "pr-ensemble-bbb", "pr-bbb-cs", "sp-bbb", "sp-tc-radial", "vcl"),
    *("ewc-multihead", "ewc-growing", "exp-replay", "joint", "hnet-fine-tuning"),
)
"""Every task map, family and strategy once."""
every_method = pytest.mark.parametrize(
    "method", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]
)


def blobs(task: int, classes: int = 2, count: int = 24, first: int = 0) -> TaskData:
    """Classes around points of a circle of their own, in two dimensions."""
    generator = generator_for(7, "blobs", task, first)
    y = first + torch.arange(count) % classes
    centres = torch.stack([3 * task + (y % 2) * 2.0, 2.0 * (y // 2)], dim=1).float()  # (N, 2)
    return TaskData(centres + 0.3 * torch.randn(count, 2, generator=generator), y)


def new_learner(method: str) -> ContinualLearner:
    generated = METHODS[method].task_map_part.generated
    network = METHODS[method].network or "mlp-4"
    defaults = {"method": method, "network": network, "seed": 0, **(SMALL if generated else {})}
    steps = {} if METHODS[method].closed_form else {"training.iterations": 3, "training.batch_size": 8}
    config = build_config(defaults, {**steps, "inference.samples": 5}, "test")
    return ContinualLearner(config, "classification", Scenario.CLASS, (2,), total_outputs=12)


def learned(method: str) -> ContinualLearner:
    return copy_of(learned_once(method))


@cache
def learned_once(method: str) -> ContinualLearner:
    learner = new_learner(method)
    for task, width in enumerate((2, 3, 2)):
        data = blobs(task, width)
        for _ in learner.begin_task(data, width):
            pass
        learner.finish_task(data)
    return learner


def revised(learner: ContinualLearner, task: int, data: TaskData, width: int | None = None) -> ContinualLearner:
    for step in learner.begin_revision(task, data, width):
        assert step.terms.total.isfinite()
    learner.finish_revision(data)
    return learner


def copy_of(learner: ContinualLearner, *, training: bool = False) -> ContinualLearner:
    """As after storing and loading."""
    copy = new_learner(learner.config.method)
    copy.restore(learner.facts(), {name: tensor.clone() for name, tensor in learner.tensors(training=training).items()})
    return copy


def answers(learner: ContinualLearner, task: int) -> Tensor:
    x = blobs(1, 3, 10).x
    return learner.predictor.outputs(x, task)


def same(first: ContinualLearner, second: ContinualLearner) -> bool:
    one, two = first.tensors(training=False), second.tensors(training=False)
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@every_method
def test_removing_a_task_leaves_the_answers_of_all_others(method: str) -> None:
    learner = learned(method)
    if method in SHARED:
        with pytest.raises(ConfigError, match="learn the other tasks again"):
            learner.remove_task(1)
        assert learner.num_tasks == 3
        return
    before = answers(learner, 0), answers(learner, 2)
    learner.remove_task(1)
    assert learner.num_tasks == 2
    assert all(
        torch.equal(now, then) for now, then in zip((answers(learner, 0), answers(learner, 1)), before, strict=True)
    )
    assert torch.equal(answers(copy_of(learner), 1), before[1])
    assert learner.predictor.predict(blobs(1, 3).x).task.max() < 2  # inferred among those that are left
    data = blobs(4, 4)
    for _ in learner.begin_task(data, 4):
        pass
    learner.finish_task(data)
    assert same(learner, copy_of(learner))
    assert learner.predictor.keeper.available


@every_method
def test_a_known_task_learns_from_further_examples(method: str) -> None:
    learner = learned(method)
    if method == "joint":
        with pytest.raises(ConfigError, match="joint training"):
            learner.begin_revision(1, blobs(1, 3, 18, 0))
        return
    before = learner.model.task_map.thetas(range(3)).detach().clone()
    again = revised(copy_of(learner), 1, blobs(1, 3, 18, 0))
    revised(learner, 1, blobs(1, 3, 18, 0))
    assert same(learner, again)
    after = learner.model.task_map.thetas(range(3)).detach()
    assert not torch.equal(after[1], before[1])
    assert torch.equal(after[0], before[0]) == (method in SEPARATE)
    assert learner.predictor.keeper.stored()[1]["examples"] == 24 + 18
    assert learner.model.lineage.revisions == [0, 1, 0]
    revised(learner, 1, blobs(1, 3, 18, 0))  # the second time with other random numbers
    assert learner.model.lineage.revisions == [0, 2, 0]


@every_method
def test_a_known_task_learns_new_classes(method: str) -> None:
    learner = learned(method)
    new = blobs(1, 2, 12, first=3)  # classes 3 and 4; the network has three outputs
    if method in SHARED:
        with pytest.raises(ConfigError, match=r"joint training|as a new task"):
            learner.begin_revision(1, new, 5)
        assert same(learner, learned(method))
        return
    revised(learner, 1, new, 5)
    assert answers(learner, 1).shape[-1] == 5
    assert answers(learner, 0).shape[-1] == 2
    stored = copy_of(learner)
    assert torch.equal(answers(stored, 1), answers(learner, 1))
    assert learner.predictor.keeper.stored()[1]["classes"].tolist() == [0, 1, 2, 3, 4]
    revised(learner, 0, blobs(0, 1, 12, first=2), 3)  # outputs that the network has already
    learner.remove_task(1)
    assert torch.equal(answers(copy_of(learner), 1), answers(learner, 1))


@every_method
def test_a_revision_continues_after_a_restart(method: str) -> None:
    if method == "joint" or METHODS[method].closed_form:  # nothing to interrupt
        return
    data = blobs(1, 3, 18, 0)
    whole, stopped = learned(method), learned(method)
    revised(whole, 1, data)
    steps = iter(stopped.begin_revision(1, data))
    next(steps)
    continued = copy_of(stopped, training=True)
    for _ in continued.continue_revision(data, stopped.tensors(training=True)):
        pass
    continued.finish_revision(data)
    assert same(whole, continued)
