"""The state of a strategy is all that it needs to go on: in the middle of a task or of an update, and between tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.model import ContinualModel
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.strategies.base import (
    CURRENT,
    STRATEGIES,
    QuietStrategy,
    StepChange,
    current_state,
    of_current,
)
from metareplay.training.loop import TaskTrainer

ThreeTasks = Any
"""The fixture of conftest.py."""


class PathIntegral(QuietStrategy):
    """Sums gradient times change over steps and protects each parameter accordingly, with added random numbers."""

    sees_steps = True

    def __init__(self) -> None:
        super().__init__(GaussianPrior())
        self.path: Tensor | None = None

    def before_task(self, model: ContinualModel, task: int) -> None:
        self.path = torch.zeros(sum(parameter.numel() for parameter in model.task_map.trained_parameters(task)))

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        if self.path is None:
            return None
        flat = torch.cat([parameter.flatten() for parameter in model.task_map.trained_parameters(task)])
        return (self.path * flat.square()).sum()

    def after_step(self, model: ContinualModel, task: int, step: StepChange, *, generator: Generator) -> None:
        assert self.path is not None
        along = [(-gradient * change).flatten() for gradient, change in zip(step.gradients, step.change, strict=True)]
        self.path = self.path + torch.cat(along) + 0.01 * torch.rand((), generator=generator)

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        self.path = None

    def state(self) -> dict[str, Tensor]:
        return {} if self.path is None else current_state({"path": self.path})

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        self.path = of_current(state).get("path")


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mse": ("pr-bbb", {"strategy.penalty": "mse"}),
    "fkl recomputed": (
        "pr-bbb",
        {"strategy.penalty": "fkl", "strategy.targets": "recomputed", "strategy.penalty_every": 2},
    ),
    "fisher": ("pr-dirac", {"strategy.penalty": "fisher"}),
    "prior from earlier tasks": ("pr-bbb", {"strategy.prior_from_earlier": 0.4}),
    "ensemble": ("pr-ensemble", {"posterior.members": 2}),
    "random old tasks": ("pr-radial-sr", {"strategy.penalty": "fisher"}),
    "coresets": ("pr-bbb-cs", {"strategy.coreset_size": 3}),
    "coresets and fisher": ("pr-radial-cs", {"strategy.coreset_size": 3, "strategy.penalty": "fisher"}),
    "last Gaussian": ("vcl", {}),
    "last Gaussian by IVON": ("vcl", {"training.optimiser": "ivon"}),
    "last implicit by SSGE": ("pf-ssge", {}),
    "last implicit by AVB": ("pf-avb", {}),
    "ewc": ("ewc-multihead", {}),
    "ewc in one softmax": ("ewc-shared", {"strategy.decay": 0.5}),
    "rehearsal": ("exp-replay", {"strategy.coreset_size": 3}),
    "synaptic intelligence": ("si", {"strategy.strength": 1.0}),
    "reservoir": ("er", {"strategy.memory_size": 3}),
    "dark reservoir": ("der++", {"strategy.memory_size": 3}),
    "without forgetting": ("lwf", {}),
    "contrast": ("ebm", {"network": "energy-4"}),
    "generative replay": ("dgr", {"strategy.generator_hidden": [4], "strategy.latent_size": 2}),
    "hypernetwork replay": (
        "hnet-r",
        {"strategy.generator_hidden": [4], "strategy.latent_size": 2, "strategy.generator_hypernet": [5]},
    ),
    "task network": (
        "hnet-tir",
        {
            "strategy.generator_hidden": [4],
            "strategy.latent_size": 2,
            "strategy.generator_hypernet": [5],
            "strategy.task_hidden": [5],
        },
    ),
    "separate": ("sp-bbb", {}),
    "separate by IVON": ("sp-bbb", {"training.optimiser": "ivon"}),
    "joint": ("joint", {}),
    "of a user": ("fine-tuning", {}),
}
every_case = pytest.mark.parametrize("case", CASES)
NEEDS_NOTHING = ("contrast", "reservoir", "dark reservoir", "separate", "separate by IVON", "joint")
"""Strategies that remember nothing while a task is learned."""


def case_learner(three_tasks: ThreeTasks, case: str) -> ContinualLearner:
    return three_tasks.learner(*CASES[case], PathIntegral() if case == "of a user" else None)


def current_names(learner: ContinualLearner) -> list[str]:
    return [name for name in learner.strategy.state() if name.startswith(CURRENT)]


def third_task(three_tasks: ThreeTasks, learner: ContinualLearner, steps: int) -> TaskTrainer:
    """Learn two tasks, then some steps of a third."""
    for task in range(2):
        list(three_tasks.begin(learner, task))
        assert current_names(learner) == []
    trainer: TaskTrainer = three_tasks.begin(learner, 2)
    walk = iter(trainer)
    for _ in range(steps):
        next(walk)
    return trainer


def copy_of(learner: ContinualLearner, again: ContinualLearner) -> dict[str, Tensor]:
    """Let another learner become this one, and give all tensors."""
    stored = {name: tensor.clone() for name, tensor in learner.tensors(training=True).items()}
    again.restore(learner.facts(), stored)
    return stored


def totals(steps: Sequence[Any]) -> list[float]:
    return [float(step.terms.total) for step in steps]


def assert_same(learner: ContinualLearner, again: ContinualLearner) -> None:
    """The same model and the same memory, to the last bit."""
    ours, theirs = learner.tensors(training=True), again.tensors(training=True)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_every_strategy_that_trains_is_here() -> None:
    trained = {name for name, part in STRATEGIES.items() if not part.closed_form}
    assert {build_config({"method": method}, {}, "test").kind().strategy for method, _ in CASES.values()} == trained


@every_case
def test_the_middle_of_a_task_is_restored_bit_for_bit(case: str, three_tasks: ThreeTasks) -> None:
    learner, again = case_learner(three_tasks, case), case_learner(three_tasks, case)
    trainer = third_task(three_tasks, learner, steps=2)
    assert bool(current_names(learner)) == (case not in NEEDS_NOTHING)
    stored = copy_of(learner, again)
    for task in range(2):
        again.revisit(task, lambda task=task: three_tasks.data(task))  # type: ignore[misc]
    resumed = again.continue_task(three_tasks.data(2), stored)
    assert_same(learner, again)
    expected, actual = totals(list(trainer)), totals(list(resumed))
    assert len(expected) == three_tasks.steps - 2
    assert actual == expected
    assert_same(learner, again)


@every_case
def test_a_finished_task_leaves_nothing_that_only_it_needed(case: str, three_tasks: ThreeTasks) -> None:
    learner = case_learner(three_tasks, case)
    list(third_task(three_tasks, learner, steps=0))
    assert current_names(learner) == []
    assert learner.strategy.penalty(learner.model, 2, generator=Generator().manual_seed(0)) is None


@every_case
def test_loading_replaces_all_that_was_remembered(case: str, three_tasks: ThreeTasks) -> None:
    learner = case_learner(three_tasks, case)
    third_task(three_tasks, learner, steps=1)
    learner.strategy.load_state(learner.model, {})
    assert learner.strategy.state() == {}
    assert learner.strategy.penalty(learner.model, 2, generator=Generator().manual_seed(0)) is None


@pytest.mark.parametrize("task", [None, 1], ids=["all tasks", "one task"])
@pytest.mark.parametrize("case", ["coresets", "coresets and fisher"])
def test_the_middle_of_an_update_is_restored_bit_for_bit(case: str, task: int | None, three_tasks: ThreeTasks) -> None:
    learner, again = case_learner(three_tasks, case), case_learner(three_tasks, case)
    list(third_task(three_tasks, learner, steps=0))
    trainer = learner.begin_update(task)
    walk = iter(trainer)
    for _ in range(2):
        next(walk)
    stored = copy_of(learner, again)
    resumed = again.continue_update(stored)
    assert resumed.tasks == trainer.tasks == ([0, 1, 2] if task is None else [1])
    assert_same(learner, again)
    assert current_names(learner)
    assert totals(list(resumed)) == totals(list(walk))
    assert current_names(learner) == []
    assert_same(learner, again)


def test_a_task_under_way_is_read_as_version_0_1_stored_it(three_tasks: ThreeTasks) -> None:
    """There the state of the present task stood under names of its own."""
    learner, again = case_learner(three_tasks, "coresets"), case_learner(three_tasks, "coresets")
    trainer = third_task(three_tasks, learner, steps=1)
    tensors = {name: tensor.clone() for name, tensor in learner.tensors(training=True).items()}
    earlier = {name.replace("memory.current.", "strategy."): tensor for name, tensor in tensors.items()}
    assert earlier.keys() != tensors.keys()
    again.restore(learner.facts(), earlier)
    resumed = again.continue_task(three_tasks.data(2), earlier)
    assert_same(learner, again)
    assert totals(list(resumed)) == totals(list(trainer))
