"""Mean-field Gaussian posteriors: Bayes-by-Backprop [Blundell2015; Henning2021, SM sec. Bayes-by-Backprop]."""

from dataclasses import dataclass
from math import log, pi
from typing import final

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor, nn

from metareplay.errors import ConfigError
from metareplay.kernels.reparametrise import reparametrise
from metareplay.nets.moments import MomentsSettings
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.base import FamilyPart, register_family
from metareplay.posteriors.families.dirac import initial_weight_variances
from metareplay.posteriors.settings import NetworkStartSettings
from metareplay.seeding import normal
from metareplay.settings import Composition

RHO_OFFSET = -2.5
"""sigma = softplus(rho - 2.5): scales start near 0.08 for a theta near zero, as in the published runs."""


def scale_of(rho: Tensor, offset: float = RHO_OFFSET) -> Tensor:
    """Standard deviations from the second half of theta."""
    return F.softplus(rho + offset)


def rho_of(scale: Tensor, offset: float = RHO_OFFSET) -> Tensor:
    """The reverse of ``scale_of``, without overflow for any scale."""
    return scale + torch.expm1(-scale).neg_().log_() - offset  # log(exp(s) - 1) = s + log(1 - exp(-s))


@final
@dataclass(frozen=True)
class MeanFieldGaussian:
    """Independent Gaussians, one per weight: q(W) = prod_i N(W_i; mean_i, scale_i^2)."""

    mean: Tensor
    scale: Tensor

    def rsample(self, n: int, *, generator: Generator) -> Tensor:
        """Reparametrised samples (n, W)."""
        noise = normal(n, *self.mean.shape, generator=generator, like=self.mean)
        return reparametrise(self.mean, self.scale, noise)

    def log_prob(self, weights: Tensor) -> Tensor:
        """Log-density of weight samples: (n, W) -> (n,)."""
        z = (weights - self.mean) / self.scale
        return (-0.5 * z.square() - self.scale.log() - 0.5 * log(2 * pi)).sum(-1)  # (n, W) -> (n,)


class GaussianSettings(NetworkStartSettings):
    """Mean-field Gaussians."""

    local_reparametrisation: bool = Field(
        False, description="sample pre-activations instead of weights in training (MLPs only)"
    )
    initial_std: float | None = Field(
        None,
        ge=1e-6,
        le=10,
        description="standard deviation near which those of weights start; null: 0.079, as in the published runs",
    )

    def check(self, composition: Composition) -> None:
        """Pre-activations are accessible in our own layers only."""
        network = composition.parts()["network"]
        if self.local_reparametrisation and not getattr(network, "multilayer", False):
            raise ConfigError(
                f"posterior.local_reparametrisation works for MLPs only, not for {network.phrase}; set it to false"
            )


@final
class GaussianFamily:
    """theta = [means, rhos], scales = softplus(rho + offset).

    Without a hypernetwork, means start uniform in [-0.1, 0.1], or at the network's ordinary initialisation
    (``keep_network_init``), and rho uniform in [-0.5, 0.5] around the offset, which follows from ``initial_std``.
    """

    name = "bbb"
    weight_sets: int | None = None

    def __init__(self, settings: NetworkStartSettings | None = None) -> None:
        self.keep_network_init = (settings or NetworkStartSettings()).keep_network_init
        start = settings.initial_std if isinstance(settings, GaussianSettings) else None
        self.offset = RHO_OFFSET if start is None else float(rho_of(torch.tensor(start, dtype=torch.float64), 0.0))

    def num_parameters(self, spec: WeightSpec) -> int:
        return 2 * spec.numel

    def initial(self, network: nn.Module, spec: WeightSpec, *, generator: Generator) -> Tensor:
        mean = torch.rand(spec.numel, generator=generator) * 0.2 - 0.1
        rho = torch.rand(spec.numel, generator=generator) - 0.5
        return torch.cat([spec.flatten(network) if self.keep_network_init else mean, rho])  # (2W,)

    def initial_variances(self, network: nn.Module, spec: WeightSpec) -> Tensor:
        mean = torch.full((spec.numel,), 0.2**2 / 12)
        if self.keep_network_init:
            mean = initial_weight_variances(network, spec)
        return torch.cat([mean, torch.full((spec.numel,), 1 / 12)])  # variances of the uniform distributions above

    def weight_mask(self, spec: WeightSpec) -> Tensor:
        return torch.arange(2 * spec.numel) < spec.numel

    def at(self, theta: Tensor, spec: WeightSpec) -> MeanFieldGaussian:
        mean, rho = theta.chunk(2, dim=-1)  # (..., 2W) -> (..., W) twice
        return MeanFieldGaussian(mean, scale_of(rho, self.offset))

    def fisher(self, theta: Tensor, spec: WeightSpec) -> Tensor:
        """In closed form; it has no entries between means and scales, so the diagonal is all of it."""
        rho = theta.chunk(2, dim=-1)[1] + self.offset
        precision = F.softplus(rho).square().reciprocal()
        slope = torch.sigmoid(rho)  # d sigma / d rho
        # R of sm:eq:kl:taylor in [means, rhos]; (..., 2W)
        return torch.cat([precision, 2 * precision * slope.square()], dim=-1)

    def while_training(self, theta: Tensor, spec: WeightSpec) -> MeanFieldGaussian:
        return self.at(theta, spec)

    def positions_in(self, spec: WeightSpec, larger: WeightSpec) -> Tensor:
        means = spec.positions_in(larger)
        return torch.cat([means, means + larger.numel])


register_family(
    FamilyPart(
        name="bbb",
        phrase="Gaussian posteriors",
        settings=(GaussianSettings, MomentsSettings),
        build=lambda parts: GaussianFamily(parts.get(GaussianSettings)),
        posterior=MeanFieldGaussian,
    )
)
