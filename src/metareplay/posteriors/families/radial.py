"""Radial posteriors: the radius does not grow with dimension [Farquhar2020; Henning2021, SM sec. Radial Posteriors]."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor, nn

from metareplay.kernels.reparametrise import reparametrise
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.base import FamilyPart, register_family
from metareplay.posteriors.families.gaussian import GaussianFamily, MeanFieldGaussian
from metareplay.posteriors.settings import NetworkStartSettings
from metareplay.seeding import normal


@final
@dataclass(frozen=True)
class Radial:
    """Means and scales with noise of unit length times a normal radius, one each for the weights and biases of a layer.

    Outputs that were added later have their own radius, so that growing leaves the old weights unchanged.
    """

    mean: Tensor
    scale: Tensor
    sizes: tuple[int, ...]
    """Lengths of the runs of consecutive weights of one group."""
    groups: tuple[int, ...] = ()
    """The group of each run; empty: each run is a group."""

    def rsample(self, n: int, *, generator: Generator) -> Tensor:
        """Reparametrised samples (n, W)."""
        noise = normal(n, *self.mean.shape, generator=generator, like=self.mean)
        groups, count = self._groups(), max(self.groups, default=len(self.sizes) - 1) + 1
        radius = normal(n, *self.mean.shape[:-1], count, generator=generator, like=self.mean)  # (n, G)
        parts = noise.split(self.sizes, dim=-1)
        squares = torch.stack([torch.linalg.vector_norm(part, dim=-1) for part in parts], dim=-1).square_()  # (n, R)
        lengths = torch.zeros_like(radius).index_add_(-1, groups, squares).sqrt_()  # (n, R) -> (n, G)
        lengths.clamp_min_(torch.finfo(lengths.dtype).tiny)  # the noise of a single weight may be exactly 0
        for part, factor in zip(parts, (radius / lengths)[..., groups].unbind(-1), strict=True):
            part.mul_(factor.unsqueeze(-1))  # in place: noise has no gradient; (n, size)
        return reparametrise(self.mean, self.scale, noise)  # eps / |eps| * r, SM eq. reparam:trick:radial; (n, W)

    def _groups(self) -> Tensor:
        return torch.tensor(self.groups or range(len(self.sizes)), device=self.mean.device)  # (R,)

    def negative_entropy(self) -> Tensor:
        """E_q log q up to a constant: -sum_i log sigma_i; (..., W) -> (...)."""
        return -self.scale.log().sum(-1)

    def moments(self) -> MeanFieldGaussian:
        """The Gaussian with the same means and variances: an element of a unit vector of size D has variance 1/D."""
        groups, sizes = self._groups(), torch.tensor(self.sizes, device=self.mean.device)  # (R,) both
        whole = torch.zeros_like(groups).index_add_(0, groups, sizes)[groups]  # (R,)
        deviations = whole.to(self.scale.dtype).rsqrt_()  # (R,)
        width = deviations.repeat_interleave(sizes, output_size=sum(self.sizes))  # (R,) -> (W,)
        return MeanFieldGaussian(self.mean, self.scale * width)


class RadialSettings(NetworkStartSettings):
    """Radial posteriors."""


@final
class RadialFamily:
    """theta = [means, rhos], interpreted and initialised as in a Gaussian family."""

    name = "radial"
    weight_sets: int | None = None

    def __init__(self, settings: NetworkStartSettings | None = None) -> None:
        self.moments = GaussianFamily(settings)

    def num_parameters(self, spec: WeightSpec) -> int:
        return self.moments.num_parameters(spec)

    def initial(self, network: nn.Module, spec: WeightSpec, *, generator: Generator) -> Tensor:
        return self.moments.initial(network, spec, generator=generator)

    def initial_variances(self, network: nn.Module, spec: WeightSpec) -> Tensor:
        return self.moments.initial_variances(network, spec)

    def weight_mask(self, spec: WeightSpec) -> Tensor:
        return self.moments.weight_mask(spec)

    def at(self, theta: Tensor, spec: WeightSpec) -> Radial:
        gaussian = self.moments.at(theta, spec)
        return Radial(gaussian.mean, gaussian.scale, *spec.runs)

    def while_training(self, theta: Tensor, spec: WeightSpec) -> Radial:
        return self.at(theta, spec)

    def positions_in(self, spec: WeightSpec, larger: WeightSpec) -> Tensor:
        return self.moments.positions_in(spec, larger)


register_family(
    FamilyPart(
        name="radial",
        phrase="radial posteriors",
        settings=(RadialSettings,),
        build=lambda parts: RadialFamily(parts.get(RadialSettings)),
        posterior=Radial,
    )
)
