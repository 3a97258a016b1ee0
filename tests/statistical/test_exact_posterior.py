"""A linear network with Gaussian noise: the loss and what training finds, against the exact posterior."""

import math

import pytest
import torch
from torch import Generator, Tensor

from metareplay.batches.base import Batch
from metareplay.batches.task import TaskBatches
from metareplay.benchmarks.base import TaskData
from metareplay.likelihoods import Gaussian
from metareplay.model import ContinualModel
from metareplay.nets.mlp import MLP
from metareplay.posteriors.families.gaussian import GaussianFamily, MeanFieldGaussian
from metareplay.posteriors.matching.direct import DirectMatching
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.seeding import generator_for
from metareplay.strategies.baselines import Unbound
from metareplay.task_maps.direct import PerTaskParameters
from metareplay.task_maps.heads import HeadLayout
from metareplay.training.loop import Job, TaskTrainer
from metareplay.training.objective import Objective
from metareplay.training.settings import TrainingSettings

NOISE = 0.5
PRIOR_VARIANCE = 2.0


def _data(rng: Generator) -> TaskData:
    x = torch.randn(12, 1, generator=rng)
    x = x - x.mean()  # weight and bias are then independent in the posterior, which is a product of two normals
    return TaskData(x, 1.5 * x - 0.7 + NOISE * torch.randn(12, 1, generator=rng))


def _trainer(data: TaskData, training: TrainingSettings, objective: Objective, rng: Generator) -> TaskTrainer:
    model = ContinualModel(
        lambda outputs: MLP((1,), (), outputs),
        GaussianFamily(),
        lambda size, _: PerTaskParameters(size),
        HeadLayout.SINGLE,
        Gaussian(NOISE),
        lambda family, network, spec: None,
    )
    model.add_task(1, generator=rng)
    job = Job(0, TaskBatches(data, training.batch_size, generator_for(0, "batches", 0)), DirectMatching())
    noise = generator_for(0, "noise", 0)
    return TaskTrainer(model, Unbound(GaussianPrior(PRIOR_VARIANCE)), [job], data, training, objective, noise=noise)


def _features(data: TaskData) -> Tensor:
    return torch.cat([data.x, torch.ones_like(data.x)], dim=1)  # (N, 1) -> (N, 2): what weight and bias see


def _expected_loss(trainer: TaskTrainer, data: TaskData) -> tuple[float, float]:
    """Data term (without constants) and prior-matching term of the negative ELBO, in closed form."""
    q = trainer.model.posterior(0)
    assert isinstance(q, MeanFieldGaussian)
    features = _features(data)
    squared = (features @ q.mean - data.y[:, 0]).square() + features.square() @ q.scale.square()
    prior = 0.5 * (
        q.scale.square() / PRIOR_VARIANCE
        + q.mean.square() / PRIOR_VARIANCE
        - 1
        - (q.scale.square() / PRIOR_VARIANCE).log()
    )
    return float(squared.detach().sum() / (2 * NOISE**2)), float(prior.detach().sum())


@pytest.mark.parametrize("local", [False, True])
def test_the_loss_is_the_negative_elbo(local: bool, rng: Generator) -> None:
    data = _data(rng)
    objective = Objective(train_samples=1000, local_reparametrisation=local, prior_scale=0.5)
    trainer = _trainer(data, TrainingSettings(batch_size=4), objective, rng)
    expected_data, expected_prior = _expected_loss(trainer, data)
    # mini-batches: each term stands for the whole data set
    job, posterior = trainer.jobs[0], trainer.model.training_posterior(0)
    batches = [Batch(x, y) for x, y in zip(data.x.split(4), data.y.split(4), strict=True)]
    terms = [[trainer.loss_terms(job, [batch], posterior) for batch in batches] for _ in range(25)]
    estimates = torch.tensor([sum(float(step.data.detach()) for step in epoch) / 3 for epoch in terms])
    error = float(estimates.std()) / math.sqrt(len(estimates))
    assert error < 0.01 * expected_data
    assert abs(float(estimates.mean()) - expected_data) < 5 * error
    assert abs(float(terms[0][0].prior.detach()) - 0.5 * expected_prior) < 1e-4 * expected_prior  # tempered
    assert float(terms[0][0].replay) == 0


def _found(data: TaskData, objective: Objective, rng: Generator) -> MeanFieldGaussian:
    """What training finds: the mean of where the noisy descent walks around."""
    trainer = _trainer(data, TrainingSettings(iterations=1200, batch_size=12, learning_rate=0.02), objective, rng)
    visited = []
    for step in trainer:
        if step.iteration > 600:
            visited.append(trainer.model.task_map.theta(0).detach().clone())
    q = trainer.model.family.at(torch.stack(visited).mean(0), trainer.model.spec)
    assert isinstance(q, MeanFieldGaussian)
    return q


@pytest.mark.parametrize("local", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_training_finds_the_exact_posterior(local: bool, rng: Generator) -> None:
    data = _data(rng)
    q = _found(data, Objective(train_samples=20, local_reparametrisation=local), rng)
    features = _features(data)
    precision = features.square().sum(0) / NOISE**2 + 1 / PRIOR_VARIANCE  # diagonal, since the inputs are centred
    mean = (features * data.y).sum(0) / NOISE**2 / precision
    assert ((q.mean - mean).abs() < 0.05 / precision.sqrt()).all()  # a twentieth of the posterior's own width
    torch.testing.assert_close(q.scale, 1 / precision.sqrt(), rtol=0.03, atol=0)


@pytest.mark.parametrize("local", [pytest.param(False, marks=pytest.mark.slow), True])
def test_training_finds_the_best_product_of_a_correlated_posterior(local: bool, rng: Generator) -> None:
    """The best factorised q for N(m, L^-1) has means m and variances 1 / L_ii, below the marginals' (L^-1)_ii."""
    data = _data(rng)
    data = TaskData(data.x + 1.2, data.y)  # no longer centred: weight and bias depend on each other
    q = _found(data, Objective(train_samples=20, local_reparametrisation=local), rng)
    features = _features(data)
    precision = features.T @ features / NOISE**2 + torch.eye(2) / PRIOR_VARIANCE
    mean = torch.linalg.solve(precision, (features * data.y).sum(0) / NOISE**2)
    scale, marginal = precision.diagonal().rsqrt(), torch.linalg.inv(precision).diagonal().sqrt()
    assert (marginal > (1 + 10 * 0.03) * scale).all()  # another answer by far
    assert ((q.mean - mean).abs() < 0.1 * scale).all()
    alone = (features * data.y).sum(0) / NOISE**2 * scale.square()  # as if weight and bias were independent
    assert ((alone - mean).abs() > 10 * 0.1 * scale).all()
    torch.testing.assert_close(q.scale, scale, rtol=0.03, atol=0)
