import torch

from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.divergences import kl
from metareplay.posteriors.families.dirac import Dirac
from metareplay.posteriors.families.gaussian import GaussianFamily
from metareplay.posteriors.priors.gaussian import GaussianPrior


def test_very_small_scales_have_a_finite_divergence() -> None:
    q = GaussianFamily().at(torch.tensor([0.0, -60.0]), WeightSpec(("w",), (torch.Size([1]),)))
    assert float(q.scale) > 0
    assert kl(q, GaussianPrior()).isfinite()


def test_points_of_several_tasks_can_be_sampled() -> None:
    assert Dirac(torch.zeros(3, 5)).rsample(4, generator=torch.Generator()).shape == (4, 3, 5)
