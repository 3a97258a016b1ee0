"""Normalising flows: an invertible weight generator with a known density [Henning2021, sm:sec:pr:implicit].

Affine coupling layers [Dinh2016; Papamakarios2019] from the package zuko, so that sampling and density take one pass
each. zuko is an optional extra and is imported only here, when a flow is created.
"""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import log, pi
from typing import final

import torch
from pydantic import Field
from torch import Generator, Tensor, nn
from torch.func import functional_call, vmap

from metareplay.errors import ConfigError
from metareplay.nets.activations import Activation, activation_named
from metareplay.nets.lending import borrowed
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.base import FamilyPart, register_family
from metareplay.posteriors.families.gaussian import GaussianFamily
from metareplay.posteriors.settings import NetworkStartSettings
from metareplay.seeding import normal
from metareplay.settings import Widths

CPU = torch.device("cpu")
LARGEST_THETA = 20_000_000
"""A flow has many parameters per main-network weight; beyond this size a step takes seconds and gigabytes."""
FIRST_CHANGE = 0.1
"""Initial standard deviation of a coupling layer's shifts and log-scales: the flow starts near the identity."""


class FlowSettings(NetworkStartSettings):
    """Coupling layers."""

    flow_transforms: int = Field(4, ge=1, description="number of coupling layers")
    flow_hidden: Widths = Field((16,), description="hidden widths of the network in each coupling layer")
    flow_activation: Activation = Field("tanh", description="activation of these networks")


@final
class Couplings(nn.Module):
    """Coupling layers over ``features`` weights, in both directions, with the log-determinant.

    theta holds their parameters in units of ``units``, so that every parameter is of order 1.
    """

    def __init__(self, features: int, transforms: int, hidden: tuple[int, ...], activation: str) -> None:
        super().__init__()
        try:
            from zuko.flows import RealNVP
        except ImportError as error:
            raise ConfigError('normalising flows need the package zuko: pip install "metareplay[flow]"') from error
        self.flow = RealNVP(
            features, transforms=transforms, hidden_features=hidden, activation=lambda: activation_named(activation)
        )
        self.spec = WeightSpec.of(self)
        units, stds = [], []
        for name, shape, size in zip(self.spec.names, self.spec.shapes, self.spec.sizes, strict=True):
            last = f".hyper.{2 * len(hidden)}." in name  # zuko's MLPs number their activations too
            units.append(torch.full((size,), shape[-1] ** -0.5 if name.endswith("weight") else 1.0))  # 1 / sqrt(inputs)
            stds.append(torch.full((size,), 0.0 if name.endswith("bias") else FIRST_CHANGE if last else 1.0))
        self.units, self.initial_stds = torch.cat(units), torch.cat(stds)  # (F,) both

    def forward(self, x: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
        """(n, W) -> (n, W) and log |det| (n,)."""
        transform = self.flow.transform()
        mapped, log_det = (transform.inv if inverse else transform).call_and_ladj(x)
        return mapped, log_det


@cache
def couplings(
    features: int, transforms: int, hidden: tuple[int, ...], activation: str, device: torch.device = CPU
) -> Couplings:
    """The coupling layers of this shape; their own parameters are never used."""
    with torch.random.fork_rng(devices=[]):  # building them draws from the global generator
        layers = Couplings(features, transforms, hidden, activation).requires_grad_(False)
    if device.type != "cpu":
        layers.units = layers.units.to(device)
        layers.to(device)
    return layers


@final
@dataclass(frozen=True)
class Flow:
    """The distribution of w = mean + scale * f(z), f the coupling layers and z ~ N(0, I)."""

    mean: Tensor
    scale: Tensor
    parameters: Tensor
    """Parameters of the coupling layers, in their natural units (..., F)."""
    layers: Couplings
    first: Tensor | None = None
    """Indices of the network's original weights, once its outputs have grown; f does not change the others."""

    def rsample(self, n: int, *, generator: Generator) -> Tensor:
        """Reparametrised samples (n, W)."""
        return self.rsample_and_log_prob(n, generator=generator)[0]

    def rsample_and_log_prob(self, n: int, *, generator: Generator) -> tuple[Tensor, Tensor]:
        """Reparametrised samples (n, W) and their log-density (n,), in one pass."""
        z = normal(n, *self.mean.shape, generator=generator, like=self.mean)
        mapped, log_det = self._couple(z, inverse=False)
        weights = torch.addcmul(self.mean, self.scale, mapped)  # (n, W)
        # change of variables, sm:sec:pr:implicit
        return weights, _standard_normal(z) - log_det - self.scale.log().sum(-1)

    def log_prob(self, weights: Tensor) -> Tensor:
        """Log-density of weight samples: (n, W) -> (n,)."""
        z, log_det = self._couple((weights - self.mean) / self.scale, inverse=True)
        return _standard_normal(z) + log_det - self.scale.log().sum(-1)

    def _couple(self, x: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        """f or its inverse: (n, ..., W) -> (n, ..., W) and log |det| (n, ...), batched over flows."""
        coupled = x if self.first is None else x[..., self.first]
        mapped, log_det = self._pass(self.parameters, coupled, inverse)
        return mapped if self.first is None else x.index_copy(-1, self.first, mapped), log_det

    def _pass(self, parameters: Tensor, x: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
        if parameters.dim() > 1:
            mapped, log_det = vmap(self._pass, in_dims=(0, 1, None), out_dims=1)(parameters, x, inverse)
            return mapped, log_det
        with borrowed(self.layers) as layers:
            mapped, log_det = functional_call(layers, self.layers.spec.unflatten(parameters), (x, inverse))
        return mapped, log_det


def _standard_normal(z: Tensor) -> Tensor:
    return (-0.5 * z.square() - 0.5 * log(2 * pi)).sum(-1)  # (n, ..., W) -> (n, ...)


@final
class FlowFamily:
    """theta = [means, rhos, parameters of the coupling layers]; means and rhos as in a Gaussian family.

    The coupling layers start near the identity, so that weights start like those of a Gaussian posterior. They span the
    weights that the network had with its first task. Outputs added later have independent Gaussian weights: coupling
    with new weights would change the distribution of the old ones.
    """

    name = "flow"
    weight_sets: int | None = None

    def __init__(self, settings: FlowSettings) -> None:
        self.settings, self.moments = settings, GaussianFamily(settings)

    def _first(self, spec: WeightSpec) -> Tensor | None:
        # groups are numbered in the order in which they were added
        return None if spec.groups is None else (spec.groups < len(spec.sizes)).nonzero().squeeze(1)

    def _layers(self, spec: WeightSpec, device: torch.device = CPU) -> Couplings:
        self.num_parameters(spec)  # raises if the flow is too large
        first, settings = self._first(spec), self.settings
        features = spec.numel if first is None else len(first)
        return couplings(features, settings.flow_transforms, settings.flow_hidden, settings.flow_activation, device)

    def num_parameters(self, spec: WeightSpec) -> int:
        first, hidden = self._first(spec), self.settings.flow_hidden
        features = spec.numel if first is None else len(first)
        if features < 2:
            raise ConfigError(
                "a flow couples weights with each other, but this network has only one; use a larger network or pr-bbb"
            )
        total = 2 * spec.numel
        for index in range(self.settings.flow_transforms):
            kept = (features + 1 - index % 2) // 2  # every other weight, alternating between layers
            total += sum((n_in + 1) * n_out for n_in, n_out in pairwise((kept, *hidden, 2 * (features - kept))))
        if total > LARGEST_THETA:
            raise ConfigError(
                f"a flow over the {features:,} weights of this network has {total:,} parameters, more than "
                f"{LARGEST_THETA:,}; choose a smaller network, narrower posterior.flow_hidden, fewer "
                "posterior.flow_transforms, or a method such as pr-bbb"
            )
        return total

    def initial(self, network: nn.Module, spec: WeightSpec, *, generator: Generator) -> Tensor:
        moments, stds = self.moments.initial(network, spec, generator=generator), self._layers(spec).initial_stds
        return torch.cat([moments, stds * torch.randn(len(stds), generator=generator)])  # (2W + F,)

    def initial_variances(self, network: nn.Module, spec: WeightSpec) -> Tensor:
        return torch.cat([self.moments.initial_variances(network, spec), self._layers(spec).initial_stds.square()])

    def weight_mask(self, spec: WeightSpec) -> Tensor:
        return torch.arange(self.num_parameters(spec)) < spec.numel

    def at(self, theta: Tensor, spec: WeightSpec) -> Flow:
        moments, parameters = theta.tensor_split([2 * spec.numel], dim=-1)  # (..., 2W + F) -> (..., 2W), (..., F)
        gaussian, layers, first = self.moments.at(moments, spec), self._layers(spec, theta.device), self._first(spec)
        first = None if first is None else first.to(theta.device)
        return Flow(gaussian.mean, gaussian.scale, parameters * layers.units, layers, first)

    def while_training(self, theta: Tensor, spec: WeightSpec) -> Flow:
        return self.at(theta, spec)

    def positions_in(self, spec: WeightSpec, larger: WeightSpec) -> Tensor:
        moments = self.moments.positions_in(spec, larger)
        return torch.cat([moments, 2 * larger.numel + torch.arange(self.num_parameters(spec) - 2 * spec.numel)])


register_family(
    FamilyPart(
        name="flow",
        phrase="normalising flows",
        settings=(FlowSettings,),
        build=lambda parts: FlowFamily(parts.get(FlowSettings)),
        posterior=Flow,
        correlated=True,
    )
)
