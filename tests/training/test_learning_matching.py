"""A prior-matching term that learns beside the task: when it is asked, what it sees, and that a checkpoint holds it."""

from typing import final

import pytest
import torch
from torch import Generator, Tensor

from metareplay.batches.task import TaskBatches
from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.posteriors.base import Posterior, Prior
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.seeding import generator_for
from metareplay.training.loop import Job, TaskTrainer
from metareplay.training.objective import Objective


@final
class Spy:
    """Counts what it is asked; its term is a number that it learned."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.learned = torch.zeros(())
        self.draws = 2

    def learn(self, q: Posterior, p: Prior, *, generator: Generator) -> None:
        self.calls.append("learn")
        assert isinstance(p, GaussianPrior)
        with torch.no_grad():
            self.learned = self.learned + q.rsample(self.draws, generator=generator).mean()

    def term(self, q: Posterior, p: Prior, *, generator: Generator) -> Tensor:
        self.calls.append("term")
        assert isinstance(p, GaussianPrior)
        return q.rsample(3, generator=generator).square().sum() * self.learned

    def tensors(self) -> dict[str, Tensor]:
        return {"learned": self.learned}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.learned = tensors["learned"].clone()


def trainer_of(method: str, spy: Spy, **given: object) -> TaskTrainer:
    settings = {"method": method, "network": "mlp-3", "training.iterations": 6, "training.batch_size": 4, **given}
    config = build_config({}, settings, "test")
    learner = ContinualLearner(config, "classification", Scenario.CLASS, (2,))
    learner.model.add_task(2, generator=Generator().manual_seed(0))
    x = torch.randn(8, 2, generator=Generator().manual_seed(1))
    data = TaskData(x, torch.arange(8) % 2)
    job = Job(0, TaskBatches(data, config.training.batch_size, generator_for(0, "batches", 0)), spy)
    noise, objective = generator_for(0, "noise", 0), Objective.of(config)
    return TaskTrainer(learner.model, learner.strategy, [job], data, config.training, objective, noise=noise)


def test_it_learns_once_before_the_term_of_each_step() -> None:
    spy = Spy()
    list(trainer_of("sp-radial", spy))
    assert spy.calls == ["learn", "term"] * 6


@pytest.mark.parametrize(("method", "given"), [("sp-dirac", {}), ("sp-bbb", {"posterior.prior_scale": 0.0})])
def test_without_a_prior_it_is_never_asked(method: str, given: dict[str, object]) -> None:
    spy = Spy()
    list(trainer_of(method, spy, **given))
    assert spy.calls == []


def test_a_checkpoint_holds_what_it_learned() -> None:
    whole, parted, resumed = (trainer_of("sp-bbb", Spy()) for _ in range(3))
    expected = [step.terms.total for step in whole]
    walk = iter(parted)
    for _ in range(3):
        next(walk)
    stored = parted.tensors()
    assert torch.equal(stored["matching.0.learned"], parted.jobs[0].matching.tensors()["learned"])
    resumed.model.task_map.load_state_dict(parted.model.task_map.state_dict())
    resumed.restore(stored)
    actual = [step.terms.total for step in resumed]
    assert torch.equal(torch.stack(actual), torch.stack(expected[3:]))


def test_a_learner_makes_a_new_one_for_every_task() -> None:
    config = build_config({}, {"method": "sp-bbb", "network": "mlp-3", "training.iterations": 1}, "test")
    learner = ContinualLearner(config, "classification", Scenario.CLASS, (2,))
    made = []
    for _ in range(2):
        trainer = learner.begin_task(
            TaskData(torch.randn(4, 2, generator=Generator().manual_seed(0)), torch.arange(4) % 2), 2
        )
        made.append(trainer.jobs[0].matching)
        list(trainer)
    assert made[0] is not made[1]


@final
class Apart:
    """A term that is zero, and besides it one whose gradient is not clipped."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def learn(self, q: Posterior, p: Prior, *, generator: Generator) -> None:
        return None

    def term(self, q: Posterior, p: Prior, *, generator: Generator) -> Tensor:
        return torch.zeros(())

    def unclipped_term(self, q: Posterior, p: Prior, *, generator: Generator) -> Tensor | None:
        return None if self.factor == 0 else self.factor * q.rsample(1, generator=generator).sum()

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        return None


def gradients_of(method: str, factor: float, **given: object) -> list[Tensor]:
    """What the optimiser sees in the first step."""
    trainer = trainer_of(method, Apart(factor), **given)  # type: ignore[arg-type]
    next(iter(trainer))
    return [parameter.grad.clone() for parameter in trainer.parameters if parameter.grad is not None]


@pytest.mark.parametrize("method", ["sp-radial", "pr-radial", "vcl"])
def test_an_unclipped_part_is_added_after_clipping(method: str) -> None:
    """The clipped rest is the same with it, and twice the part is twice the gradient, times the tempering."""
    given = {"training.clip_norm": 0.001, "posterior.prior_scale": 0.5}
    clipped, once, twice = (gradients_of(method, factor, **given) for factor in (0.0, 1000.0, 2000.0))
    total = torch.stack([gradient.square().sum() for gradient in clipped]).sum().sqrt()
    assert float(total) <= 0.001 + 1e-6
    size = max(float(gradient.abs().max()) for gradient in once)
    assert size > 0.1
    for rest, first, second in zip(clipped, once, twice, strict=True):
        torch.testing.assert_close(second - rest, 2 * (first - rest), rtol=1e-4, atol=1e-4 * size)
    whole = gradients_of(method, 1000.0, **{**given, "posterior.prior_scale": 1.0})
    for first, doubled in zip(once, whole, strict=True):
        torch.testing.assert_close(doubled, 2 * first, rtol=1e-4, atol=0.003 + 1e-4 * size)


def test_an_unclipped_part_is_no_part_of_the_loss() -> None:
    losses = [
        [float(step.terms.total) for step in trainer_of("sp-radial", Apart(factor))]  # type: ignore[arg-type]
        for factor in (0.0, 3.0)
    ]
    assert losses[0][0] == losses[1][0]
    assert losses[0][1:] != losses[1][1:]
