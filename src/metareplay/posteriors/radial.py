"""Radial posteriors [Farquhar2020; Henning2021, SM sec. Radial Posteriors]: the radius does not grow with the dimension."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor, nn

from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.gaussian import GaussianFamily, MeanFieldGaussian
from metareplay.seeding import normal


@final
@dataclass(frozen=True)
class Radial:
    """Means and scales with noise of unit length times a normal radius, for weights and biases of each layer apart.

    Outputs that were added later have a radius of their own, so that growing changes nothing old.
    """

    mean: Tensor
    scale: Tensor
    sizes: tuple[int, ...]
    groups: Tensor | None = None

    def rsample(self, n: int, *, generator: Generator) -> Tensor:
        """Reparametrised samples (n, W)."""
        noise = normal(n, *self.mean.shape, generator=generator, like=self.mean)
        count = len(self.sizes) if self.groups is None else int(self.groups.max()) + 1
        radius = normal(n, *self.mean.shape[:-1], count, generator=generator, like=self.mean)  # (n, G)
        if self.groups is None:
            for number, part in enumerate(noise.split(self.sizes, dim=-1)):  # in place: noise has no gradient
                part.mul_((radius[..., number] / torch.linalg.vector_norm(part, dim=-1)).unsqueeze(-1))  # (n, size)
        else:
            squares = torch.zeros_like(radius).index_add_(-1, self.groups, noise.square())  # (n, W) -> (n, G)
            noise = noise * (radius / squares.sqrt())[..., self.groups]  # (n, G) -> (n, W)
        return torch.addcmul(self.mean, self.scale, noise)  # eps / |eps| * r, SM eq. reparam:trick:radial; (n, W)

    def _counts(self) -> Tensor:
        return torch.tensor(self.sizes, device=self.mean.device)  # (G,)

    def negative_entropy(self) -> Tensor:
        """E_q log q up to a constant: -sum_i log sigma_i; (..., W) -> (...)."""
        return -self.scale.log().sum(-1)

    def moments(self) -> MeanFieldGaussian:
        """The Gaussian with the same means and variances: an element of a unit vector of size D has variance 1/D."""
        if self.groups is None:
            sizes = self._counts().repeat_interleave(self._counts(), output_size=sum(self.sizes))  # (G,) -> (W,)
        else:
            sizes = self.groups.bincount()[self.groups]  # (W,)
        return MeanFieldGaussian(self.mean, self.scale / sizes.sqrt())


@final
class RadialFamily:
    """theta = [means, rhos], read and started as a Gaussian's."""

    name = "radial"
    weight_sets: int | None = None

    def __init__(self, moments: GaussianFamily) -> None:
        self.moments = moments

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
        groups = None if spec.groups is None else spec.groups.to(theta.device)
        return Radial(gaussian.mean, gaussian.scale, spec.sizes, groups)

    def while_training(self, theta: Tensor, spec: WeightSpec) -> Radial:
        return self.at(theta, spec)

    def positions_in(self, spec: WeightSpec, larger: WeightSpec) -> Tensor:
        return self.moments.positions_in(spec, larger)
