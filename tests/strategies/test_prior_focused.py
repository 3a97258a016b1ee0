"""Prior-focused learning: the last posterior is the next prior, and a new head starts from the fixed one."""

from typing import Any, cast

import pytest
import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.learner.build import build_matching, build_model, build_strategy
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.model import ContinualModel
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.families.implicit import Implicit
from metareplay.posteriors.matching.ssge import SSGEMatching, SSGESettings
from metareplay.posteriors.priors.earlier import LastPosterior
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.strategies.prior_focused import PriorFocused
from metareplay.task_maps.heads import HeadLayout


def test_the_body_takes_the_last_posterior_and_a_new_head_the_fixed_prior(rng: Generator) -> None:
    config = build_config({"method": "vcl", "network": "mlp-4"}, {"posterior.prior_variance": 4.0}, "test")
    model, strategy = (
        build_model(config, "classification", Scenario.CLASS, (3,)),
        cast(PriorFocused, build_strategy(config)),
    )
    model.add_task(2, generator=rng)
    strategy.before_task(model, 0)
    first = strategy.prior_for(0)
    assert isinstance(first, GaussianPrior)
    assert first.variance == 4.0
    before = cast(MeanFieldGaussian, model.posterior(0))
    body = 3 * 4 + 4
    old_head = before.mean[body:].view(-1)
    model.add_task(3, generator=rng)
    strategy.before_task(model, 1)
    prior = strategy.prior_for(1)
    assert isinstance(prior, MeanFieldGaussian)
    torch.testing.assert_close(prior.mean[:body], before.mean[:body].detach())
    torch.testing.assert_close(prior.scale[:body], before.scale[:body].detach())
    head = model.spec.unflatten(prior.mean)["layers.1.weight"], model.spec.unflatten(prior.scale)["layers.1.weight"]
    torch.testing.assert_close(head[0][:2].reshape(-1), old_head[:8].detach())  # the old head keeps its posterior
    assert not head[0][2:].any()
    assert (head[1][2:] == 2.0).all()
    assert not prior.mean.requires_grad


def grown_twice(given: dict[str, Any], rng: Generator) -> tuple[ContinualModel, PriorFocused, Tensor]:
    """A pf-ssge model before its third task, and samples of its old weights from before it grew."""
    config = build_config({"method": "pf-ssge", "network": "mlp-4"}, {"posterior.prior_variance": 4.0, **given}, "test")
    model, strategy = (
        build_model(config, "classification", Scenario.CLASS, (3,)),
        cast(PriorFocused, build_strategy(config)),
    )
    for task in range(3):
        before = (
            model.posterior(task - 1).rsample(4000, generator=Generator().manual_seed(1)).detach()
            if task
            else torch.empty(0)
        )
        model.add_task(2, generator=rng)
        strategy.before_task(model, task)
        if task < 2:
            model.task_map.theta(task).data.add_(0.3 * torch.randn(model.task_map.num_outputs, generator=rng))
    return model, strategy, before


KINDS = [{}, {"posterior.support_noise": 0.5}, {"posterior.generator_chunk_size": 9, "posterior.support_noise": None}]


@pytest.mark.parametrize("given", KINDS, ids=["plain", "noisy", "chunked"])
def test_old_weights_follow_the_last_implicit_posterior(given: dict[str, Any], rng: Generator) -> None:
    """Means and covariances of 4,000 samples within 0.1 of the largest variance; the new head has the fixed prior."""
    model, strategy, before = grown_twice(given, rng)
    prior = strategy.prior_for(2)
    assert isinstance(prior, LastPosterior)
    samples = prior.rsample(4000, generator=Generator().manual_seed(2))
    assert not samples.requires_grad
    assert int(model.fresh.sum()) == 2 * 4 + 2
    old, largest = samples[:, ~model.fresh], float(before.var(0).max())
    torch.testing.assert_close(old.mean(0), before.mean(0), atol=0.1 * largest**0.5, rtol=0)
    torch.testing.assert_close(old.T.cov(), before.T.cov(), atol=0.1 * largest, rtol=0)
    new = samples[:, model.fresh]
    torch.testing.assert_close(new.T.cov(), 4.0 * torch.eye(10), atol=0.5, rtol=0)
    model.task_map.theta(2).data.add_(1.0)  # training the task leaves the prior as it was
    assert torch.equal(prior.rsample(4000, generator=Generator().manual_seed(2)), samples)


@pytest.mark.parametrize(
    "given", [*KINDS, {**KINDS[2], "posterior.support_noise": 0.5}], ids=["plain", "noisy", "chunked", "noisy chunks"]
)
def test_the_order_of_the_weights_does_not_matter_to_ssge(
    given: dict[str, Any], rng: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights in the order of generation (which saves reordering) or of the network: the same value and gradient."""
    model, strategy, _ = grown_twice(given, rng)
    posterior, prior, actual = model.posterior(2), strategy.prior_for(2), []
    assert isinstance(posterior, Implicit)
    settings = SSGESettings(ssge_samples=30, ssge_ratio=0.99, prior_samples=40)
    moved = SSGEMatching(settings)._oldest_first(posterior, prior)[0] is posterior
    assert moved == ("posterior.generator_chunk_size" not in given)
    for _ in range(2):
        value = SSGEMatching(settings).term(posterior, prior, generator=Generator().manual_seed(1))
        actual.append(
            (
                value.detach(),
                *torch.autograd.grad(value, list(model.task_map.parameters()), retain_graph=True, allow_unused=True),
            )
        )
        monkeypatch.setattr(SSGEMatching, "_oldest_first", lambda self, q, p: (q, p))
    for one, another in zip(*actual, strict=True):
        torch.testing.assert_close(one, another, rtol=1e-4, atol=1e-4)


def test_a_checkpoint_holds_the_sampled_prior(rng: Generator) -> None:
    model, strategy, _ = grown_twice({}, rng)
    config = build_config({"method": "pf-ssge", "network": "mlp-4"}, {"posterior.prior_variance": 4.0}, "test")
    other = cast(PriorFocused, build_strategy(config))
    stored = {name: tensor.clone() for name, tensor in strategy.state().items()}
    model.task_map.theta(2).data.add_(1.0)
    other.load_state(model, stored)
    matching = build_matching(config, model.spec.numel, generator=rng)
    assert isinstance(matching, SSGEMatching)
    weights = torch.randn(3, model.spec.numel, generator=rng)
    actual = [
        matching.sampled_prior(each.prior_for(2), weights, generator=Generator().manual_seed(1))
        for each in (strategy, other)
    ]
    for one, another in zip(*actual, strict=True):  # the value, and the score
        assert torch.equal(one, another)


def test_a_checkpoint_holds_the_prior(rng: Generator) -> None:
    config = build_config({"method": "vcl", "network": "mlp-4"}, {}, "test")
    model, strategy = (
        build_model(config, "classification", Scenario.CLASS, (3,)),
        cast(PriorFocused, build_strategy(config)),
    )
    for task in range(2):
        model.add_task(2, generator=rng)
        strategy.before_task(model, task)
    other = cast(PriorFocused, build_strategy(config))
    other.load_state(model, strategy.state())
    assert isinstance(strategy.last, MeanFieldGaussian)
    assert isinstance(other.last, MeanFieldGaussian)
    assert torch.equal(other.last.mean, strategy.last.mean)
    assert torch.equal(other.last.scale, strategy.last.scale)
    other.load_state(model, {})
    assert other.last is None


@pytest.mark.parametrize(
    ("method", "layout"),
    [
        ("vcl", HeadLayout.MULTI),
        ("vcl-growing", HeadLayout.GROWING),
        ("pf-ssge", HeadLayout.MULTI),
        ("pf-avb", HeadLayout.MULTI),
    ],
)
def test_classes_get_heads_of_their_own_or_one_softmax(method: str, layout: HeadLayout) -> None:
    config = build_config({"method": method, "network": "mlp-4"}, {}, "test")
    assert build_model(config, "classification", Scenario.CLASS, (3,)).layout is layout
    if layout is HeadLayout.MULTI:  # a growing softmax refuses regression
        assert build_model(config, "regression", Scenario.DOMAIN, (3,)).layout is HeadLayout.SINGLE


NOISE, PRECISION = 1.0, 15.0
"""Standard deviation of targets, and precision of the fixed prior."""
FIRST = torch.tensor([[1.0], [-1.0]]).repeat(4, 1), torch.tensor([[-4.3], [0.4], [-3.3], [-0.4]]).repeat(2, 1)
SECOND = torch.tensor([[1.2], [-1.2], [0.8], [-0.8]]), torch.tensor([[5.2], [-0.1], [3.8], [0.3]])


def exact(prior: float, first: float) -> tuple[Tensor, Tensor]:
    """Mean and scale of the posterior of weight and bias that counts fixed prior and first task's data this often.

    y = w x + b with noise, and inputs that sum to zero in each task: w and b are independent.
    """
    mean, precision = torch.zeros(2), prior * torch.full((2,), PRECISION)
    for share, (x, y) in zip((first, 1.0), (FIRST, SECOND), strict=True):
        design = torch.cat([x, torch.ones_like(x)], dim=1)  # weight and bias
        precision += share * design.square().sum(0) / NOISE**2
        mean += share * (design * y).sum(0) / NOISE**2
    return mean / precision, precision.rsqrt()


def learned_in_two_tasks(power: float) -> MeanFieldGaussian:
    """The posterior of VCL; each task ends at the mean of where the noisy descent walks around in its second half."""
    given = {
        "network": "mlp",
        "posterior.likelihood_scale": NOISE,
        "posterior.prior_variance": 1 / PRECISION,
        "posterior.prior_power": power,
        "posterior.train_samples": 100,
        "training.batch_size": 8,
        "training.iterations": 500,
        "training.learning_rate": 0.03,
    }
    learner = ContinualLearner(build_config({"method": "vcl"}, given, "test"), "regression", Scenario.DOMAIN, (1,))
    for task, (x, y) in enumerate((FIRST, SECOND)):
        visited = []
        for step in learner.begin_task(TaskData(x, y), 1):
            if step.iteration > step.iterations // 2:
                visited.append(learner.model.task_map.theta(task).detach().clone())
        learner.model.task_map.theta(task).data.copy_(torch.stack(visited).mean(0))
    return cast(MeanFieldGaussian, learner.model.posterior(1))


MEAN_TOLERANCE, SCALE_TOLERANCE = 0.1, 0.03
"""In units of the exact posterior's scale."""
BETA = 0.25
ANSWERS = {  # how often the fixed prior and the first task count; the second task always counts once
    "both tasks": (1.0, 1.0),
    "the second task alone": (1.0, 0.0),
    "tempered": (BETA**2, BETA),
    "tempered, the second task alone": (BETA**2, 0.0),
    "tempered, the fixed prior once": (BETA, BETA),
    "tempered, but not the first task": (BETA, 1.0),
}


@pytest.mark.parametrize(("power", "answer"), [(1.0, "both tasks"), (BETA, "tempered")])
def test_two_tasks_give_the_batch_answer_of_a_linear_model(power: float, answer: str) -> None:
    """The mean-field recursion is exact here: learning in two steps equals learning in one.

    With prior_power beta the fixed prior counts beta twice over, the first task's data once, the second's fully.
    """
    mean, scale = exact(*ANSWERS[answer])
    for other in ANSWERS:
        if other != answer:  # no wrong answer is near
            wrong_mean, wrong_scale = exact(*ANSWERS[other])
            assert ((wrong_mean - mean).abs() > 5 * MEAN_TOLERANCE * scale).all(), other
            assert ((wrong_scale - scale).abs() > 5 * SCALE_TOLERANCE * scale).all(), other
    actual = learned_in_two_tasks(power)
    assert ((actual.mean.detach() - mean).abs() < MEAN_TOLERANCE * scale).all()
    assert ((actual.scale.detach() - scale).abs() < SCALE_TOLERANCE * scale).all()
