"""IVON finds the exact posterior of linear regression, keeps what earlier tasks taught, and is refused elsewhere."""

from typing import Any

import pytest
import torch
from torch import Tensor

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.errors import ConfigError
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.posteriors.families.gaussian import MeanFieldGaussian, rho_of, scale_of
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.training.natural import Ivon
from metareplay.training.settings import TrainingSettings

PRIOR_VARIANCE, NOISE = 4.0, 0.5
IVON: dict[str, Any] = {
    "training.optimiser": "ivon",
    "training.ivon_rate": 0.1,
    "training.ivon_decay": 0.98,
    "training.batch_size": 64,
    "training.iterations": 500,
    "training.cosine": True,
    "posterior.prior_variance": PRIOR_VARIANCE,
    "posterior.likelihood_scale": NOISE,
    "statistics.collect": False,
}


def design(task: int) -> TaskData:
    """64 inputs with orthogonal columns of different lengths, so that the exact posterior is a mean-field Gaussian."""
    generator = torch.Generator().manual_seed(task)
    columns = torch.linalg.qr(torch.cat([torch.ones(64, 1), torch.randn(64, 3, generator=generator)], 1))[0][:, 1:]
    x = columns * 8 * torch.tensor([0.1, 0.5, 2.0])
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.3 + NOISE * torch.randn(64, 1, generator=generator)
    return TaskData(x, y)


def exact(*tasks: TaskData) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of weights and bias, given the data of these tasks."""
    x = torch.cat([torch.cat([task.x, torch.ones(len(task.x), 1)], 1) for task in tasks]).double()
    y = torch.cat([task.y for task in tasks]).double()
    precision = x.T @ x / NOISE**2 + torch.eye(4, dtype=torch.float64) / PRIOR_VARIANCE
    mean = torch.linalg.solve(precision, x.T @ y / NOISE**2).flatten()
    return mean.float(), precision.diagonal().rsqrt().float()


@pytest.fixture(scope="module")
def sequence() -> list[MeanFieldGaussian]:
    """The posteriors after the first and the second task, each with the last as its prior."""
    config = build_config({"method": "vcl", "network": "mlp"}, IVON, "test")
    learner, found = ContinualLearner(config, "regression", Scenario.DOMAIN, (3,)), []
    for task in range(2):
        for _ in learner.begin_task(design(task), 1):
            pass
        posterior = learner.model.posterior(task)
        assert isinstance(posterior, MeanFieldGaussian)
        found.append(MeanFieldGaussian(posterior.mean.detach().clone(), posterior.scale.detach().clone()))
    return found


@pytest.mark.parametrize("tasks", [1, 2])
def test_the_posterior_is_that_of_all_data_so_far(tasks: int, sequence: list[MeanFieldGaussian]) -> None:
    mean, std = exact(*(design(task) for task in range(tasks)))
    found = sequence[tasks - 1]
    assert ((found.mean - mean) / std).abs().max() < 0.3
    assert (found.scale / std - 1).abs().max() < 0.25


@pytest.mark.parametrize("offset", [-2.5, -4.6])
def test_scales_are_found_again(offset: float) -> None:
    scale = torch.tensor([1e-6, 1e-3, 0.08, 1.0, 50.0, 1e4])
    torch.testing.assert_close(scale_of(rho_of(scale, offset), offset), scale)


def test_the_posterior_does_not_depend_on_where_its_scales_start(sequence: list[MeanFieldGaussian]) -> None:
    config = build_config({"method": "vcl", "network": "mlp"}, {**IVON, "posterior.initial_std": 0.01}, "test")
    learner = ContinualLearner(config, "regression", Scenario.DOMAIN, (3,))
    for _ in learner.begin_task(design(0), 1):
        pass
    posterior = learner.model.posterior(0)
    assert isinstance(posterior, MeanFieldGaussian)
    assert (posterior.scale / sequence[0].scale - 1).abs().max() < 0.1


@pytest.mark.parametrize(
    ("method", "network", "words"),
    [
        ("pr-bbb", "mlp-4", "a hypernetwork that generates them"),
        ("sp-radial", "mlp-4", "radial posteriors"),
        ("sp-dirac", "mlp-4", "point estimates"),
        ("sp-ensemble-bbb", "mlp-4", "ensembles"),
        ("ewc-multihead", "mlp-4", "choose vcl, vcl-growing or sp-bbb"),
    ],
)
def test_other_posteriors_are_refused(method: str, network: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_config({"method": method, "network": network}, {"training.optimiser": "ivon"}, "test")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"training.optimiser": "ivon", "posterior.prior_scale": 0.0}, "prior_scale, which is 0"),
        ({"training.optimiser": "ivon", "training.learning_rate": 0.1}, "training.ivon_rate"),
        ({"training.ivon_rate": 0.1}, "training.optimiser=ivon"),
    ],
)
def test_settings_of_the_other_optimiser_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_config({"method": "vcl", "network": "mlp-4"}, given, "test")


def test_precisions_stay_positive_for_any_curvature() -> None:
    """Negative estimates, however large, at most halve a precision."""
    theta = torch.nn.Parameter(torch.zeros(6))
    settings = TrainingSettings(optimiser="ivon", ivon_decay=0.5)
    optimiser = Ivon(theta, settings, GaussianPrior(1.0), examples=10, prior_scale=1.0)
    before = scale_of(theta.detach()[3:])
    theta.grad = torch.tensor([0.0, 0.0, 0.0, -1e6, -30.0, 0.0])
    optimiser.step()
    after = scale_of(theta.detach()[3:])
    assert after.isfinite().all()
    assert (after / before <= 2**0.5 + 1e-5).all()


def test_without_data_the_posterior_becomes_the_prior() -> None:
    theta = torch.nn.Parameter(torch.zeros(2))
    settings = TrainingSettings(optimiser="ivon", ivon_decay=0.9)
    prior = MeanFieldGaussian(torch.tensor([0.7]), torch.tensor([0.3]))
    optimiser = Ivon(theta, settings, prior, examples=100, prior_scale=0.1)
    theta.grad = torch.zeros(2)
    for _ in range(300):
        optimiser.step()
    torch.testing.assert_close(theta.detach()[:1], prior.mean, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(scale_of(theta.detach()[1:]), prior.scale, rtol=1e-3, atol=1e-4)
