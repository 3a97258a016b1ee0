"""What a training step asks a strategy for, and what it tells it: batches with weights, gradients, changes."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from metareplay.batches.base import Batch
from metareplay.batches.task import TaskBatches
from metareplay.model import ContinualModel
from metareplay.nets.weights import run_flat
from metareplay.posteriors.matching.direct import DirectMatching
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.seeding import generator_for
from metareplay.strategies.base import (
    QuietStrategy,
    StepChange,
)
from metareplay.strategies.baselines import Unbound
from metareplay.training.loop import Job, TaskTrainer
from metareplay.training.objective import Objective

ThreeTasks = Any
"""The fixture of conftest.py."""


class Watcher(QuietStrategy):
    """Adds the same batch to every step, if it is given one, and remembers what the steps did."""

    sees_steps = True

    def __init__(self, extra: Batch | None = None) -> None:
        super().__init__(GaussianPrior())
        self.extra = extra
        self.before: list[list[Tensor]] = []
        self.after: list[list[Tensor]] = []
        self.tasks: list[int] = []
        self.steps: list[StepChange] = []

    def batches_for(self, model: ContinualModel, task: int, batch: Batch, *, generator: Generator) -> Sequence[Batch]:
        self.before.append(values(model, task))
        return (batch,) if self.extra is None else (batch, self.extra)

    def after_step(self, model: ContinualModel, task: int, step: StepChange, *, generator: Generator) -> None:
        self.after.append(values(model, task))
        self.tasks.append(task)
        self.steps.append(step)


def values(model: ContinualModel, task: int) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.task_map.trained_parameters(task)]


def data_term(model: ContinualModel, weights: Tensor, batches: Sequence[Batch], size: int) -> Tensor:
    """N times the weighted sum of the batches' mean negative log-likelihoods under a point estimate (W,)."""
    terms = []
    for x, y, weight in batches:
        log_p = run_flat(model.network, model.spec, weights.unsqueeze(0), x)[0].log_softmax(1)
        terms.append(-weight * log_p[torch.arange(len(y)), y].mean())
    return size * torch.stack(terms).sum()


EXTRA = Batch(torch.tensor([[0.5, -1.0], [2.0, 0.3], [-0.7, 0.1]]), torch.tensor([1, 0, 1]), 0.25)


@pytest.mark.parametrize("extra", [None, EXTRA], ids=["own batch", "and a weighted one"])
def test_a_step_has_the_weighted_loss_its_gradients_and_changes_that_add_up(
    extra: Batch | None, three_tasks: ThreeTasks
) -> None:
    watcher = Watcher(extra)
    learner = three_tasks.learner("sp-dirac", {"training.record_signals": True}, watcher)
    trainer = three_tasks.begin(learner, 0)
    start = values(learner.model, 0)
    walked = list(trainer)
    assert watcher.tasks == [0] * three_tasks.steps
    for step, seen, (before,), (after,) in zip(walked, watcher.steps, watcher.before, watcher.after, strict=True):
        own, *added = seen.batches
        assert (len(own.x), own.weight) == (4, 1.0)
        assert [id(batch) for batch in added] == ([] if extra is None else [id(extra)])
        leaf = before.clone().requires_grad_()
        loss = data_term(learner.model, leaf, seen.batches, 10)
        torch.testing.assert_close(step.terms.data, loss.detach())
        torch.testing.assert_close(step.terms.total, loss.detach())
        torch.testing.assert_close(seen.gradients[0], torch.autograd.grad(loss, leaf)[0])
        assert seen.parameters == learner.model.task_map.trained_parameters(0)
        assert torch.equal(seen.change[0], after - before)
        torch.testing.assert_close(before + seen.change[0], after)
        assert trainer.signals is not None
        mean_nll = data_term(learner.model, before, [own], 1)
        torch.testing.assert_close(trainer.signals[step.iteration - 1, 0], mean_nll)  # of the task's own batch alone
    first = watcher.steps[0]
    # Adam's first step
    torch.testing.assert_close(first.change[0], -three_tasks.rate * first.gradients[0].sign(), rtol=1e-3, atol=1e-6)
    total = torch.stack([step.change[0] for step in watcher.steps]).sum(0)
    torch.testing.assert_close(start[0] + total, values(learner.model, 0)[0])


def test_gradients_are_those_of_the_loss_however_they_are_clipped(three_tasks: ThreeTasks) -> None:
    watchers = Watcher(), Watcher()
    for watcher, settings in zip(watchers, ({}, {"training.clip_norm": 0.5, "training.clip_value": 0.1}), strict=True):
        list(three_tasks.learner("sp-bbb", settings, watcher).begin_task(three_tasks.data(0), 2))
    plain, clipped = (watcher.steps[0].gradients[0] for watcher in watchers)
    assert clipped.norm() > 0.5
    assert torch.equal(plain, clipped)
    first, second = (watcher.steps[1].change[0] for watcher in watchers)
    assert not torch.equal(first, second)  # the optimiser saw the clipped ones


@pytest.mark.parametrize("method", ["sp-bbb", "hnet-fine-tuning"])
def test_watching_changes_no_bit(method: str, three_tasks: ThreeTasks) -> None:
    actual = []
    for strategy in (Watcher(), Unbound(GaussianPrior())):
        learner = three_tasks.learner(method, strategy=strategy)
        for task in range(2):
            list(three_tasks.begin(learner, task))
        actual.append(learner.model.task_map.thetas([0, 1]).detach())
    assert torch.equal(*actual)


def test_a_strategy_that_does_not_ask_is_told_nothing(monkeypatch: pytest.MonkeyPatch, three_tasks: ThreeTasks) -> None:
    monkeypatch.setattr(Watcher, "sees_steps", False)
    watcher = Watcher()
    list(three_tasks.learner("sp-bbb", strategy=watcher).begin_task(three_tasks.data(0), 2))
    assert len(watcher.before) == three_tasks.steps
    assert watcher.steps == []


def test_each_of_several_tasks_is_told_of_a_step_with_its_own_batches(three_tasks: ThreeTasks) -> None:
    watcher, learner = Watcher(), three_tasks.learner("sp-dirac")
    for task in range(2):
        list(three_tasks.begin(learner, task))
    jobs = [
        Job(task, TaskBatches(three_tasks.data(task), 4, generator_for(0, "batches", task)), DirectMatching())
        for task in range(2)
    ]
    settings, noise = learner.config.training, generator_for(0, "noise", 0)
    walked = list(
        TaskTrainer(learner.model, watcher, jobs, three_tasks.data(0), settings, Objective(point=True), noise=noise)
    )
    assert watcher.tasks == [0, 1] * three_tasks.steps
    for number, step in enumerate(walked):
        losses = []
        for task in range(2):
            seen = watcher.steps[2 * number + task]
            assert len(seen.parameters) == len(seen.gradients) == len(seen.change) == 2  # those of both tasks
            assert all((three_tasks.data(task).x == row).all(1).any() for row in seen.batches[0].x)
            weights = watcher.before[2 * number + task][0]
            x, y, _ = seen.batches[0]
            log_p = run_flat(learner.model.network, learner.model.spec, weights.unsqueeze(0), x)[0]
            log_p = log_p[:, learner.model.training_columns(task)].log_softmax(1)
            losses.append(-10 * log_p[torch.arange(4), y].mean())
        torch.testing.assert_close(step.terms.data, torch.stack(losses).sum())
