"""Ensembles: a posterior that is a mixture of equally likely members [Henning2021, SM sec. Deep Ensembles].

theta concatenates the parameters of all members. Point estimates make a deep ensemble, Gaussians a Gaussian mixture.
"""

from copy import deepcopy
from dataclasses import dataclass
from math import ceil
from typing import ClassVar, final

import torch
from pydantic import Field
from torch import Generator, Tensor, nn

from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.base import FAMILIES, FamilyPart, Posterior, PosteriorFamily, register_family
from metareplay.posteriors.divergences import kl, wasserstein2
from metareplay.settings import Settings


@final
@dataclass(frozen=True)
class Mixture:
    """q(W) = 1/M sum_m q_m(W)."""

    components: Posterior
    """The members' distributions, batched: the last dimension before the weights indexes members."""
    members: int

    def rsample(self, n: int, *, generator: Generator) -> Tensor:
        """Stratified samples (n, W): sample i comes from member i mod M."""
        samples = self.components.rsample(ceil(n / self.members), generator=generator)  # (n / M, ..., M, W)
        return samples.movedim(-2, 1).flatten(0, 1)[:n]  # (n / M, M, ..., W) -> (n, ..., W)


@kl.register(Mixture, Mixture)
def _kl_mixtures(q: Mixture, p: Mixture) -> Tensor:
    divergences = kl(q.components, p.components)  # (..., M)
    return divergences.mean(-1)  # 1/M sum_m KL(q_m || p_m) >= KL(q || p), by convexity in both; (..., M) -> (...)


@wasserstein2.register(Mixture, Mixture)
def _wasserstein2_mixtures(q: Mixture, p: Mixture) -> Tensor:
    distances = wasserstein2(q.components, p.components)  # (..., M)
    return distances.mean(-1)  # the cost of one transport plan from q to p, so at least W2^2; (..., M) -> (...)


def members_of(posterior: Posterior) -> tuple[Posterior, int]:
    """The members' batched distributions and their number; any other posterior is its own single member."""
    return (posterior.components, posterior.members) if isinstance(posterior, Mixture) else (posterior, 1)


class EnsembleSettings(Settings):
    """The members of an ensemble."""

    group: ClassVar[str] = "posterior"
    members: int = Field(
        5, ge=2, description="number of members of a task's posterior, each with its own embedding (or parameters)"
    )


@final
class MixtureFamily:
    """theta = [theta of member 1, ..., theta of member M], each interpreted by the family of the members.

    Where theta is stored directly, each member starts from a different network: the first from ``network``, the others
    from networks whose weight tensors have the same mean and variance.
    """

    def __init__(self, base: PosteriorFamily, members: int, name: str) -> None:
        self.base, self.members, self.name = base, members, name
        self.weight_sets = None if base.weight_sets is None else members * base.weight_sets

    def num_parameters(self, spec: WeightSpec) -> int:
        return self.members * self.base.num_parameters(spec)

    def initial(self, network: nn.Module, spec: WeightSpec, *, generator: Generator) -> Tensor:
        networks = [network, *(redrawn(network, generator) for _ in range(self.members - 1))]
        return torch.cat([self.base.initial(member, spec, generator=generator) for member in networks])  # (M P,)

    def initial_variances(self, network: nn.Module, spec: WeightSpec) -> Tensor:
        return self.base.initial_variances(network, spec).repeat(self.members)  # (P,) -> (M P,)

    def weight_mask(self, spec: WeightSpec) -> Tensor:
        return self.base.weight_mask(spec).repeat(self.members)  # (P,) -> (M P,)

    def at(self, theta: Tensor, spec: WeightSpec) -> Mixture:
        return Mixture(self.base.at(self._split(theta), spec), self.members)

    def while_training(self, theta: Tensor, spec: WeightSpec) -> Mixture:
        return Mixture(self.base.while_training(self._split(theta), spec), self.members)

    def _split(self, theta: Tensor) -> Tensor:
        return theta.unflatten(-1, (self.members, -1))  # (..., M P) -> (..., M, P)

    def positions_in(self, spec: WeightSpec, larger: WeightSpec) -> Tensor:
        offsets = self.base.num_parameters(larger) * torch.arange(self.members).unsqueeze(1)  # (M, 1)
        return (self.base.positions_in(spec, larger) + offsets).flatten()  # (M, P) -> (M P,)


def member_family(family: PosteriorFamily) -> tuple[PosteriorFamily, int]:
    """The family of an ensemble's members and their number; any other family counts as its own single member."""
    return (family.base, family.members) if isinstance(family, MixtureFamily) else (family, 1)


def redrawn(network: nn.Module, generator: Generator) -> nn.Module:
    """A copy with new random weights: each tensor uniform, with the mean and variance of its elements."""
    copy = deepcopy(network)
    for weight in (weight for weight in copy.parameters() if weight.requires_grad):
        spread = 3**0.5 * weight.data.std(correction=0)  # U(-s, s) has variance s^2 / 3
        weight.data = weight.data.mean() + spread * (2 * torch.rand(weight.shape, generator=generator) - 1)
    return copy


def ensemble_of(name: str, members: FamilyPart, phrase: str) -> FamilyPart:
    """A family whose posteriors are ensembles of another family's."""
    return FamilyPart(
        name=name,
        phrase=phrase,
        settings=(EnsembleSettings, *members.settings[:1]),
        build=lambda parts: MixtureFamily(members.build(parts), parts.get(EnsembleSettings).members, name),
        posterior=members.posterior,
        matching=members.matching,
        point=members.point,
        point_in_training=members.point_in_training,
        members=members.name,
        correlated=members.correlated,
    )


register_family(ensemble_of("ensemble", FAMILIES["dirac"], "ensembles of point estimates"))
register_family(ensemble_of("ensemble-bbb", FAMILIES["bbb"], "ensembles of Gaussian posteriors"))
