"""The training loop: the loss recomputed by hand, clipping, lengths, and continuing where a checkpoint stopped."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.errors import CheckpointError
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.seeding import generator_for
from metareplay.training.loop import TaskTrainer

SETTINGS: dict[str, Any] = {
    "network": "mlp-5",
    "training.iterations": 6,
    "training.batch_size": 4,
    "training.learning_rate": 0.01,
    "posterior.train_samples": 3,
    "posterior.prior_scale": 0.3,
    "posterior.prior_variance": 2.0,
    "hypernet.hidden": [6],
    "hypernet.task_embedding_size": 3,
    "hypernet.chunk_size": 7,
    "strategy.strength": 0.7,
    "strategy.penalty": "mse",
    "seed": 5,
}
OLD_TASKS = 2


def blobs(task: int, size: int = 10) -> TaskData:
    generator = generator_for(task, "blobs")
    y = torch.arange(size) % 2
    return TaskData(torch.randn(size, 2, generator=generator) + 2.0 * y.unsqueeze(1), y)


def learner_of(**changes: Any) -> ContinualLearner:
    given = {**SETTINGS, **{key.replace("__", "."): value for key, value in changes.items()}}
    config = build_config({}, {key: value for key, value in given.items() if value != "absent"}, "test")
    return ContinualLearner(config, "classification", Scenario.CLASS, (2,))


def third_task(learner: ContinualLearner, steps: int) -> TaskTrainer:
    """Learn two tasks, then some steps of a third."""
    for task in range(OLD_TASKS):
        list(learner.begin_task(blobs(task), 2))
    trainer = learner.begin_task(blobs(OLD_TASKS), 2)
    walk = iter(trainer)
    for _ in range(steps):
        next(walk)
    return trainer


def generator_at(state: Tensor) -> Generator:
    generator = Generator()
    generator.set_state(state)
    return generator


def gaussian(theta: Tensor) -> tuple[Tensor, Tensor]:
    mean, rho = theta.chunk(2)
    return mean, F.softplus(rho - 2.5)


def by_hand_nll(weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Mean negative log-likelihood of a 2-5-2 network, one weight sample after another."""
    losses = []
    for flat in weights:
        w1, b1, w2, b2 = flat.split([10, 5, 10, 2])
        hidden = (x @ w1.view(5, 2).T + b1).relu()
        log_p = (hidden @ w2.view(2, 5).T + b2).log_softmax(1)
        losses += [-row[label] for row, label in zip(log_p, y, strict=True)]
    return torch.stack(losses).mean()


def by_hand_penalty(
    kind: str, old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor], thetas: tuple[Tensor, Tensor]
) -> Tensor:
    (m0, s0), (m1, s1) = old, new
    if kind == "mse":
        return (thetas[0] - thetas[1]).square().sum()
    if kind == "w2":
        return (m0 - m1).square().sum() + (s0 - s1).square().sum()
    q, p = (old, new) if kind == "fkl" else (new, old)
    gaussians = [torch.distributions.Normal(*pair) for pair in (q, p)]
    return torch.distributions.kl_divergence(gaussians[0], gaussians[1]).sum()


@pytest.mark.parametrize("penalty", ["mse", "fkl", "rkl", "w2"])
def test_the_loss_is_recomputed_by_hand(penalty: str) -> None:
    learner = learner_of(strategy__penalty=penalty)
    trainer = third_task(learner, steps=2)
    task_map, stored = learner.model.task_map, trainer.tensors()
    checkpoint = learner.strategy.checkpoint  # type: ignore[attr-defined]
    with torch.no_grad():
        order, position = stored["batches.0.order"], int(stored["batches.0.position"])
        assert position + 4 > len(order)  # this batch crosses the epoch's end
        fresh = torch.randperm(10, generator=generator_at(stored["batches.0.generator"]))
        index = torch.cat([order[position:], fresh])[:4]
        x, y = blobs(OLD_TASKS).x[index], blobs(OLD_TASKS).y[index]
        mean, scale = gaussian(task_map.theta(OLD_TASKS))
        noise = torch.randn(3, mean.numel(), generator=generator_at(stored["noise"]))
        data = 10 * by_hand_nll(mean + scale * noise, x, y)
        ratio = (scale**2 + mean**2) / 2.0
        prior = 0.3 * 0.5 * (ratio - 1 - (scale**2 / 2.0).log()).sum()
        changes = []
        for task in range(OLD_TASKS):
            before, after = checkpoint.theta(task), task_map.theta(task)
            changes.append(by_hand_penalty(penalty, gaussian(before), gaussian(after), (before, after)))
        replay = 0.7 * torch.stack(changes).mean()
    step = next(iter(trainer))
    assert replay > 0
    torch.testing.assert_close(step.terms.data, data, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(step.terms.prior, prior, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(step.terms.replay, replay, rtol=1e-3, atol=1e-7)
    torch.testing.assert_close(step.terms.total, data + prior + replay, rtol=1e-4, atol=1e-5)


def test_a_point_estimate_has_neither_prior_nor_samples() -> None:
    bayesian = {key.replace(".", "__"): "absent" for key in SETTINGS if key.startswith("posterior.")}
    learner = learner_of(method="pr-dirac", **bayesian)
    trainer = third_task(learner, steps=1)
    noise = trainer.noise.get_state()
    step = next(iter(trainer))
    assert float(step.terms.prior) == 0.0
    assert torch.equal(trainer.noise.get_state(), noise)  # nothing was drawn


def test_no_prior_with_scale_zero() -> None:
    step = next(iter(learner_of(posterior__prior_scale=0.0).begin_task(blobs(0), 2)))
    assert float(step.terms.prior) == 0.0
    assert float(step.terms.replay) == 0.0  # the first task has no old ones


def test_the_power_of_the_prior_is_another_prior() -> None:
    """N(0, 2)^0.25 is N(0, 8); prior_scale tempers the term as a whole on top of it."""
    powered, broader, plain = (
        next(iter(learner_of(**changes).begin_task(blobs(0), 2))).terms.prior
        for changes in ({"posterior__prior_power": 0.25}, {"posterior__prior_variance": 8.0}, {})
    )
    assert torch.equal(powered, broader)
    assert not torch.isclose(powered, plain)


def gradients(clip_norm: float | None, clip_value: float | None = None) -> Tensor:
    trainer = learner_of(training__clip_norm=clip_norm, training__clip_value=clip_value).begin_task(blobs(0), 2)
    next(iter(trainer))
    return torch.cat([parameter.grad.flatten() for parameter in trainer.parameters if parameter.grad is not None])


def test_gradients_are_clipped_as_a_whole() -> None:
    free, clipped = gradients(None), gradients(0.25)
    assert free.norm() > 1
    torch.testing.assert_close(clipped, free * 0.25 / free.norm(), rtol=1e-4, atol=1e-7)


def test_small_gradients_are_not_clipped() -> None:
    assert torch.equal(gradients(None), gradients(1e6, 1e6))


def test_gradients_are_clipped_one_by_one() -> None:
    free, clipped = gradients(None), gradients(None, 0.05)
    assert (free.abs() > 0.05).any()
    assert torch.equal(clipped, free.clamp(-0.05, 0.05))


@pytest.mark.parametrize(("epochs", "batch_size", "steps"), [(1, 4, 3), (3, 4, 9), (2, 5, 4), (2, 100, 2)])
def test_epochs_are_turned_into_steps(epochs: int, batch_size: int, steps: int) -> None:
    learner = learner_of(training__epochs=epochs, training__iterations="absent", training__batch_size=batch_size)
    walked = list(learner.begin_task(blobs(0), 2))
    assert [step.iteration for step in walked] == list(range(1, steps + 1))
    assert {step.iterations for step in walked} == {steps}


def test_iterations_are_counted() -> None:
    assert len(list(learner_of(training__iterations=5).begin_task(blobs(0), 2))) == 5


@pytest.mark.parametrize("stop", range(7))
def test_a_restored_trainer_continues_bit_for_bit(stop: int) -> None:
    whole = learner_of()
    losses = [float(step.terms.total) for step in third_task(whole, steps=0)]
    broken = learner_of()
    third_task(broken, steps=stop)
    facts, stored = broken.facts(), {name: tensor.clone() for name, tensor in broken.tensors(training=True).items()}
    again = learner_of()
    again.restore(facts, stored)
    continued = [float(step.terms.total) for step in again.continue_task(blobs(OLD_TASKS), stored)]
    assert continued == losses[stop:]
    for name, tensor in whole.model.tensors().items():
        assert torch.equal(tensor, again.model.tensors()[name]), name


def test_a_trainer_refuses_changed_data() -> None:
    learner = learner_of()
    third_task(learner, steps=2)
    stored = learner.tensors(training=True)
    with pytest.raises(CheckpointError, match="the data has changed"):
        learner.continue_task(blobs(OLD_TASKS, size=12), stored)


def test_only_the_task_at_hand_is_trained_with_separate_posteriors() -> None:
    hypernet = {key.replace(".", "__"): "absent" for key in SETTINGS if key.startswith(("hypernet.", "strategy."))}
    learner = learner_of(method="sp-bbb", **hypernet)
    list(learner.begin_task(blobs(0), 2))
    before = learner.model.task_map.theta(0).detach().clone()
    list(learner.begin_task(blobs(1), 2))
    assert torch.equal(learner.model.task_map.theta(0), before)
