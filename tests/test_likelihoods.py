"""Likelihoods against values by hand and against PyTorch's densities."""

import math

import pytest
import torch
from torch import Generator
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Normal

from metareplay.likelihoods import Categorical, Gaussian


def test_cross_entropy_by_hand() -> None:
    outputs = torch.tensor([[[0.0, 0.0], [math.log(3.0), 0.0]], [[math.log(4.0), 0.0], [0.0, 0.0]]])  # (2, 2, 2)
    y = torch.tensor([1, 0])
    # Sample 1: p = 1/2 and 3/4; sample 2: p = 1/5 and 1/2.
    expected = -(math.log(1 / 2) + math.log(3 / 4) + math.log(1 / 5) + math.log(1 / 2)) / 4
    assert math.isclose(float(Categorical().nll(outputs, y)), expected, rel_tol=1e-6)


def test_cross_entropy_is_the_mean_log_density(rng: Generator) -> None:
    outputs = torch.randn(3, 5, 4, generator=rng, dtype=torch.float64)
    y = torch.randint(4, (5,), generator=rng)
    expected = -TorchCategorical(logits=outputs).log_prob(y.expand(3, -1)).mean()
    torch.testing.assert_close(Categorical().nll(outputs, y), expected)


def test_cross_entropy_of_confident_mistakes_is_finite() -> None:
    outputs = torch.tensor([[[200.0, -200.0]]])
    assert float(Categorical().nll(outputs, torch.tensor([1]))) == 400


@pytest.mark.parametrize("scale", [0.05, 1.0, 3.0])
@pytest.mark.parametrize("targets", [1, 3])
def test_squared_error_is_a_normal_density_up_to_its_constant(scale: float, targets: int, rng: Generator) -> None:
    outputs = torch.randn(4, 6, targets, generator=rng, dtype=torch.float64)
    y = torch.randn(6, targets, generator=rng, dtype=torch.float64)
    constant = targets * math.log(scale * math.sqrt(2 * math.pi))
    density = Normal(outputs, scale).log_prob(y.expand(4, -1, -1)).sum(-1).mean()
    torch.testing.assert_close(Gaussian(scale).nll(outputs, y), -density - constant)


def test_squared_error_by_hand() -> None:
    outputs = torch.tensor([[[1.0], [2.0]], [[3.0], [2.0]]])
    y = torch.tensor([[1.0], [4.0]])
    assert math.isclose(float(Gaussian(0.5).nll(outputs, y)), (0 + 4 + 4 + 4) / 4 / (2 * 0.25))


def test_samples_are_averaged_after_the_logarithm(rng: Generator) -> None:
    outputs = torch.randn(3, 5, 4, generator=rng)
    y = torch.randint(4, (5,), generator=rng)
    single = torch.stack([Categorical().nll(sample.unsqueeze(0), y) for sample in outputs])
    torch.testing.assert_close(Categorical().nll(outputs, y), single.mean())
    targets = torch.randn(5, 4, generator=rng)
    single = torch.stack([Gaussian(0.3).nll(sample.unsqueeze(0), targets) for sample in outputs])
    torch.testing.assert_close(Gaussian(0.3).nll(outputs, targets), single.mean())


def test_soft_targets_by_hand() -> None:
    outputs = torch.tensor([[[0.0, 0.0, math.log(2.0)]]])  # p = 1/4, 1/4, 1/2
    teacher = torch.tensor([[math.log(3.0), 0.0]])  # p* = 3/4, 1/4, and nothing for the class it did not know
    assert math.isclose(float(Categorical().distillation(outputs, teacher)), math.log(4.0), rel_tol=1e-6)


def test_soft_targets_are_a_cross_entropy(rng: Generator) -> None:
    outputs = torch.randn(3, 5, 4, generator=rng, dtype=torch.float64)
    teacher = torch.randn(5, 4, generator=rng, dtype=torch.float64)
    expected = -(teacher.softmax(-1) * outputs.log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(Categorical().distillation(outputs, teacher), expected)


def test_a_sure_teacher_gives_hard_targets(rng: Generator) -> None:
    outputs, y = torch.randn(2, 5, 4, generator=rng), torch.randint(3, (5,), generator=rng)
    teacher = 200.0 * torch.nn.functional.one_hot(y, 3)
    torch.testing.assert_close(Categorical().distillation(outputs, teacher), Categorical().nll(outputs, y))


def test_distilled_means_are_a_squared_error(rng: Generator) -> None:
    outputs, teacher = torch.randn(2, 5, 3, generator=rng), torch.randn(5, 3, generator=rng)
    expected = (outputs - teacher).square().sum(-1).mean() / (2 * 0.3**2)
    torch.testing.assert_close(Gaussian(0.3).distillation(outputs, teacher), expected)
