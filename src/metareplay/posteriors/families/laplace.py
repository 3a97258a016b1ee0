"""The Gaussian that EWC builds after a task [Henning2021, SM sec. Elastic Weight Consolidation].

While a task is being learned theta is a point, the MAP estimate; its second half holds the precision of each weight,
which the strategy updates from the Fisher information after the task.

The Gaussian describes the neighbourhood of the point only: weights that hardly mattered keep the prior's precision, and
a network with weights sampled that far away predicts noise. The Fisher information is the curvature of the network
linearised at the point, and for that network the Gaussian is valid everywhere [Immer2021, Improving predictions of
Bayesian neural nets via local linearization]; so predictions use the linearised network by default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from pydantic import Field
from torch import Generator, Tensor, nn

from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.base import FamilyPart, register_family
from metareplay.posteriors.families.dirac import Dirac, initial_weight_variances
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.settings import FixedPriorSettings
from metareplay.settings import Composition, Settings


@final
@dataclass(frozen=True)
class LinearisedGaussian:
    """A Gaussian over the weights of the network linearised at its mean."""

    mean: Tensor
    scale: Tensor

    def rsample(self, n: int, *, generator: Generator) -> Tensor:
        """Reparametrised samples (n, W)."""
        return MeanFieldGaussian(self.mean, self.scale).rsample(n, generator=generator)


class LaplaceSettings(FixedPriorSettings):
    """The prior, whose precision is added to that of every weight."""


class LinearisedSettings(Settings):
    """How the Gaussian predicts."""

    group: ClassVar[str] = "strategy"
    linearised: bool = Field(
        True,
        description="EWC's Gaussian predicts with the network linearised at the point; false: with weight samples",
    )

    def without_effect(self, composition: Composition) -> Mapping[str, str]:
        """Settings about weight samples."""
        if not self.linearised:
            return {}
        reason = "it predicts with the linearised network, which needs no weight samples"
        return dict.fromkeys(("inference.adaptive", "inference.autocast"), reason)


@final
class LaplaceFamily:
    """theta = [weights, precisions]. Predictions use the Gaussian, ``linearised`` or not, or (``point``) its mode."""

    def __init__(self, prior_variance: float, *, point: bool, linearised: bool = True) -> None:
        self.name = "ewc-point" if point else "ewc"
        self.prior_variance, self.point, self.linearised = prior_variance, point, linearised
        self.weight_sets = 1 if point else None

    def num_parameters(self, spec: WeightSpec) -> int:
        return 2 * spec.numel

    def initial(self, network: nn.Module, spec: WeightSpec, *, generator: Generator) -> Tensor:
        return torch.cat([spec.flatten(network), torch.full((spec.numel,), 1 / self.prior_variance)])  # (2W,)

    def initial_variances(self, network: nn.Module, spec: WeightSpec) -> Tensor:
        return torch.cat([initial_weight_variances(network, spec), torch.zeros(spec.numel)])

    def weight_mask(self, spec: WeightSpec) -> Tensor:
        return torch.arange(2 * spec.numel) < spec.numel

    def at(self, theta: Tensor, spec: WeightSpec) -> Dirac | MeanFieldGaussian | LinearisedGaussian:
        weights, precision = theta.chunk(2, dim=-1)  # (..., 2W) -> (..., W) twice
        if self.point:
            return Dirac(weights)
        kind = LinearisedGaussian if self.linearised else MeanFieldGaussian
        return kind(weights, precision.rsqrt())  # SM eq. ewc:constructed

    def while_training(self, theta: Tensor, spec: WeightSpec) -> Dirac:
        weights = theta if theta.shape[-1] == spec.numel else theta.chunk(2, dim=-1)[0]  # precisions are optional; (W,)
        return Dirac(weights)

    def positions_in(self, spec: WeightSpec, larger: WeightSpec) -> Tensor:
        weights = spec.positions_in(larger)
        return torch.cat([weights, weights + larger.numel])


register_family(
    FamilyPart(
        name="ewc",
        phrase="Gaussian posteriors built by EWC",
        settings=(LaplaceSettings, LinearisedSettings),
        build=lambda parts: LaplaceFamily(
            parts.get(LaplaceSettings).prior_variance, point=False, linearised=parts.get(LinearisedSettings).linearised
        ),
        posterior=MeanFieldGaussian,
        point_in_training=True,
    )
)
register_family(
    FamilyPart(
        name="ewc-point",
        phrase="point estimates held by EWC",
        settings=(LaplaceSettings,),
        build=lambda parts: LaplaceFamily(parts.get(LaplaceSettings).prior_variance, point=True),
        posterior=Dirac,
        point=True,
    )
)
