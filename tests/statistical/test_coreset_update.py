"""The plain coreset update on a linear Gaussian model: first D without C, then C, is Bayes' rule for D."""

from typing import cast

import pytest
import torch

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.strategies.coresets import CoresetReplay
from metareplay.training.loop import TaskTrainer

NOISE, PRIOR_VARIANCE, WEIGHTS = 0.5, 2.0, 3


def walk(trainer: TaskTrainer, task_map: torch.nn.Module) -> None:
    """Train, and end at the mean of where the noisy descent walks around."""
    visited: dict[str, torch.Tensor] = {}
    for step in trainer:
        if step.iteration > step.iterations // 2:
            for name, value in task_map.state_dict().items():
                visited[name] = visited.get(name, torch.zeros_like(value)) + value / (
                    step.iterations - step.iterations // 2
                )
    task_map.load_state_dict(visited)


def exact(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of the weights' posterior."""
    precision = x.square().sum(0) / NOISE**2 + 1 / PRIOR_VARIANCE
    return (x * y).sum(0) / NOISE**2 / precision, precision.rsqrt()


@pytest.mark.slow
def test_learning_a_part_and_updating_with_the_rest_is_bayes_rule() -> None:
    rng = torch.Generator().manual_seed(0)
    which = torch.arange(36) % WEIGHTS
    # any part of the data has independent weights in its posterior
    x = torch.nn.functional.one_hot(which, WEIGHTS).float()
    y = (x @ torch.tensor([1.0, -0.5, 0.3])).unsqueeze(1) + NOISE * torch.randn(36, 1, generator=rng)
    given = {
        "method": "pr-bbb-cs",
        "network": "mlp-1",  # replaced below
        "training.iterations": 1200,
        "training.batch_size": 36,
        "training.learning_rate": 0.02,
        "posterior.prior_variance": PRIOR_VARIANCE,
        "posterior.likelihood_scale": NOISE,
        "posterior.train_samples": 20,
        "hypernet.kind": "plain",
        "hypernet.hidden": [],
        "hypernet.task_embedding_size": 2,
        "strategy.coreset_size": 15,
    }
    learner = ContinualLearner(build_config({}, given, "test"), "regression", Scenario.DOMAIN, (WEIGHTS,))
    learner.model.factory = lambda outputs: torch.nn.Linear(WEIGHTS, outputs, bias=False)
    walk(learner.begin_task(TaskData(x, y), 1), learner.model.task_map)
    rest = learner.trainer
    assert rest is not None

    def check(mean: torch.Tensor, scale: torch.Tensor) -> None:
        q = cast(MeanFieldGaussian, learner.model.posterior(0))
        assert ((q.mean - mean).abs() < 0.08 * scale).all()
        torch.testing.assert_close(q.scale.detach(), scale, rtol=0.04, atol=0)

    check(*exact(rest.examples.x, rest.examples.y))
    kept = cast(CoresetReplay, learner.strategy).coresets[0]
    assert len(kept.x) == 15
    walk(learner.begin_update(0), learner.model.task_map)
    check(*exact(x, y))
    # the coreset did matter
    assert not torch.allclose(exact(x, y)[1], exact(rest.examples.x, rest.examples.y)[1], rtol=0.1)
