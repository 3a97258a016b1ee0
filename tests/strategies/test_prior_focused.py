"""Prior-focused learning: the last posterior is the next prior, and a new head starts from the fixed one."""

from typing import cast

import pytest
import torch
from torch import Generator

from metareplay.benchmarks.base import Scenario, Split
from metareplay.experiments.build import build_model, build_strategy
from metareplay.experiments.config import build_config
from metareplay.experiments.learner import ContinualLearner
from metareplay.model import HeadLayout
from metareplay.posteriors.gaussian import GaussianPrior, MeanFieldGaussian
from metareplay.strategies.prior_focused import PriorFocused


def test_the_body_takes_the_last_posterior_and_a_new_head_the_fixed_prior(rng: Generator) -> None:
    config = build_config({"method": "vcl", "network": "mlp-4"}, {"posterior.prior_variance": 4.0}, "test")
    model, strategy = build_model(config, "classification", Scenario.CLASS, (3,)), cast(PriorFocused, build_strategy(config))
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


def test_a_checkpoint_holds_the_prior(rng: Generator) -> None:
    config = build_config({"method": "vcl", "network": "mlp-4"}, {}, "test")
    model, strategy = build_model(config, "classification", Scenario.CLASS, (3,)), cast(PriorFocused, build_strategy(config))
    for task in range(2):
        model.add_task(2, generator=rng)
        strategy.before_task(model, task)
    other = cast(PriorFocused, build_strategy(config))
    other.restore(model, 1, strategy.tensors())
    assert strategy.last is not None
    assert other.last is not None
    assert torch.equal(other.last.mean, strategy.last.mean)
    assert torch.equal(other.last.scale, strategy.last.scale)
    other.restore(model, 0, {})
    assert other.last is None


@pytest.mark.parametrize(("method", "layout"), [("vcl", HeadLayout.MULTI), ("vcl-growing", HeadLayout.GROWING)])
def test_classes_get_heads_of_their_own_or_one_softmax(method: str, layout: HeadLayout) -> None:
    config = build_config({"method": method, "network": "mlp-4"}, {}, "test")
    assert build_model(config, "classification", Scenario.CLASS, (3,)).layout is layout
    assert build_model(config, "regression", Scenario.DOMAIN, (3,)).layout is HeadLayout.SINGLE


@pytest.mark.slow
def test_two_tasks_give_the_batch_answer_of_a_linear_model() -> None:
    """y = w x + b with noise has a Gaussian posterior, and inputs that sum to zero in each task leave w and b independent.

    Then the mean-field recursion is exact: learning in two steps equals learning in one.
    """
    scale, x = 0.5, torch.tensor([[1.0], [-1.0], [2.0], [-2.0]])
    y = torch.tensor([[1.2], [-0.9], [2.3], [-1.2]])
    given = {
        "network": "mlp",
        "posterior.likelihood_scale": scale,
        "posterior.train_samples": 20,
        "training.iterations": 4000,
        "training.learning_rate": 0.005,
    }
    config = build_config({"method": "vcl"}, given, "test")
    learner = ContinualLearner(config, "regression", Scenario.DOMAIN, (1,))
    for rows in (slice(0, 2), slice(2, 4)):
        for _ in learner.begin_task(Split(x[rows], y[rows]), 1):
            pass
    found = cast(MeanFieldGaussian, learner.model.posterior(1))
    design = torch.cat([x, torch.ones_like(x)], dim=1)  # weight and bias
    precision = torch.eye(2) + design.T @ design / scale**2
    mean = torch.linalg.solve(precision, design.T @ y / scale**2).squeeze(1)
    exact_scale = precision.diagonal().rsqrt()
    torch.testing.assert_close(found.mean.detach(), mean, atol=0.08, rtol=0)
    torch.testing.assert_close(found.scale.detach(), exact_scale, atol=0.04, rtol=0)
