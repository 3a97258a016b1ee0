"""Point estimates: q(W) = delta(W - theta) [Henning2021, sec. 3], as used by von Oswald et al. 2020."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor, nn

from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.base import FamilyPart, register_family


@final
@dataclass(frozen=True)
class Dirac:
    """All mass on one weight vector."""

    weights: Tensor

    def rsample(self, n: int, *, generator: Generator) -> Tensor:
        """The same weights n times: (n, W), without a copy."""
        single = self.weights.unsqueeze(0)  # (W,) -> (1, W)
        return single if n == 1 else single.expand(n, *self.weights.shape)  # (1, W) -> (n, W); its gradient is a sum


@final
class DiracFamily:
    """theta is the weight vector itself."""

    name = "dirac"
    weight_sets: int | None = 1

    def num_parameters(self, spec: WeightSpec) -> int:
        return spec.numel

    def initial(self, network: nn.Module, spec: WeightSpec, *, generator: Generator) -> Tensor:
        return spec.flatten(network)

    def initial_variances(self, network: nn.Module, spec: WeightSpec) -> Tensor:
        return initial_weight_variances(network, spec)

    def weight_mask(self, spec: WeightSpec) -> Tensor:
        return torch.ones(spec.numel, dtype=torch.bool)

    def at(self, theta: Tensor, spec: WeightSpec) -> Dirac:
        return Dirac(theta)

    def while_training(self, theta: Tensor, spec: WeightSpec) -> Dirac:
        return self.at(theta, spec)

    def positions_in(self, spec: WeightSpec, larger: WeightSpec) -> Tensor:
        return spec.positions_in(larger)


def initial_weight_variances(network: nn.Module, spec: WeightSpec) -> Tensor:
    """Empirical second moment of each weight tensor at initialisation, repeated for its elements: (W,)."""
    weights = spec.flatten(network)
    return torch.cat([part.square().mean().expand(part.numel()) for part in weights.split(spec.sizes)])


register_family(
    FamilyPart(name="dirac", phrase="point estimates", build=lambda parts: DiracFamily(), posterior=Dirac, point=True)
)
