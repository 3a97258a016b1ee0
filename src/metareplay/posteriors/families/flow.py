"""Normalising flows: an invertible weight generator, whose density is known [Henning2021, sm:sec:pr:implicit; Papamakarios2019].

Affine coupling layers [Dinh2016] of the package zuko, so that sampling and density take one pass each. zuko is an optional
extra and is imported only here, when a flow is made.
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
"""A flow has many parameters per weight of the main network; beyond this a step takes seconds and gigabytes."""
FIRST_CHANGE = 0.1
"""Initial standard deviation of what a coupling layer adds to values and to logarithms of scales: the flow starts near the identity."""


class FlowSettings(NetworkStartSettings):
    """Coupling layers."""

    flow_transforms: int = Field(4, ge=1, description="number of coupling layers")
    flow_hidden: Widths = Field((16,), description="hidden widths of the network in each coupling layer")
    flow_activation: Activation = Field("tanh", description="activation of these networks")


@final
class Couplings(nn.Module):
    """Coupling layers over so many weights; both directions, with the logarithm of the volume change.

    theta holds their parameters in units of ``units``: a number of size 1 is a usual parameter, whoever made it.
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
            last = f".hyper.{2 * len(hidden)}." in name  # zuko's MLPs count activations too
            units.append(torch.full((size,), shape[-1] ** -0.5 if name.endswith("weight") else 1.0))  # 1 / sqrt(inputs)
            stds.append(torch.full((size,), 0.0 if name.endswith("bias") else FIRST_CHANGE if last else 1.0))
        self.units, self.initial_stds = torch.cat(units), torch.cat(stds)  # (F,) both

    def forward(self, x: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
        """(n, W) -> (n, W) and log |det| (n,)."""
        transform = self.flow.transform()
        moved, stretch = (transform.inv if inverse else transform).call_and_ladj(x)
        return moved, stretch


@cache
def couplings(
    features: int, transforms: int, hidden: tuple[int, ...], activation: str, device: torch.device = CPU
) -> Couplings:
    """The coupling layers of this shape; their own parameters are never used."""
    with torch.random.fork_rng(devices=[]):  # building them draws from the global generator
        found = Couplings(features, transforms, hidden, activation).requires_grad_(False)
    if device.type != "cpu":
        found.units = found.units.to(device)
        found.to(device)
    return found


@final
@dataclass(frozen=True)
class Flow:
    """The distribution of w = mean + scale * f(z), f the coupling layers and z ~ N(0, I)."""

    mean: Tensor
    scale: Tensor
    parameters: Tensor
    """Those of the coupling layers, in usual units (..., F)."""
    layers: Couplings
    first: Tensor | None = None
    """The weights that the network had at first, once its outputs have grown; f leaves the others as they are."""

    def rsample(self, n: int, *, generator: Generator) -> Tensor:
        """Reparametrised samples (n, W)."""
        return self.rsample_and_log_prob(n, generator=generator)[0]

    def rsample_and_log_prob(self, n: int, *, generator: Generator) -> tuple[Tensor, Tensor]:
        """Reparametrised samples (n, W) and their log-density (n,), in one pass."""
        z = normal(n, *self.mean.shape, generator=generator, like=self.mean)
        moved, stretch = self._couple(z, inverse=False)
        weights = torch.addcmul(self.mean, self.scale, moved)  # (n, W)
        return weights, _standard_normal(z) - stretch - self.scale.log().sum(
            -1
        )  # change of variables, sm:sec:pr:implicit

    def log_prob(self, weights: Tensor) -> Tensor:
        """Log-density of weight samples: (n, W) -> (n,)."""
        z, stretch = self._couple((weights - self.mean) / self.scale, inverse=True)
        return _standard_normal(z) + stretch - self.scale.log().sum(-1)

    def _couple(self, x: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        """f or its inverse: (n, ..., W) -> (n, ..., W) and log |det| (n, ...), batched over flows."""
        chosen = x if self.first is None else x[..., self.first]
        moved, stretch = self._pass(self.parameters, chosen, inverse)
        return moved if self.first is None else x.index_copy(-1, self.first, moved), stretch

    def _pass(self, parameters: Tensor, x: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
        if parameters.dim() > 1:
            moved, stretch = vmap(self._pass, in_dims=(0, 1, None), out_dims=1)(parameters, x, inverse)
            return moved, stretch
        with borrowed(self.layers) as layers:
            moved, stretch = functional_call(layers, self.layers.spec.unflatten(parameters), (x, inverse))
        return moved, stretch


def _standard_normal(z: Tensor) -> Tensor:
    return (-0.5 * z.square() - 0.5 * log(2 * pi)).sum(-1)  # (n, ..., W) -> (n, ...)


@final
class FlowFamily:
    """theta = [means, rhos, parameters of the coupling layers]; means and rhos are read and started as a Gaussian's.

    The coupling layers start near the identity, so that weights start like those of a Gaussian posterior. They span the weights
    that the network had with its first task. Outputs that are added later have independent Gaussian weights: couplings with new
    weights would change the old ones' distribution.
    """

    name = "flow"
    weight_sets: int | None = None

    def __init__(self, settings: FlowSettings) -> None:
        self.settings, self.moments = settings, GaussianFamily(settings)

    def _first(self, spec: WeightSpec) -> Tensor | None:
        return (
            None if spec.groups is None else (spec.groups < len(spec.sizes)).nonzero().squeeze(1)
        )  # groups are numbered as they came

    def _layers(self, spec: WeightSpec, device: torch.device = CPU) -> Couplings:
        self.num_parameters(spec)  # refuses what is too large
        first, settings = self._first(spec), self.settings
        features = spec.numel if first is None else len(first)
        return couplings(features, settings.flow_transforms, settings.flow_hidden, settings.flow_activation, device)

    def num_parameters(self, spec: WeightSpec) -> int:
        first, hidden = self._first(spec), self.settings.flow_hidden
        features = spec.numel if first is None else len(first)
        if features < 2:
            raise ConfigError(
                "a flow couples weights with each other, but this network has only one; choose a larger network or pr-bbb"
            )
        total = 2 * spec.numel
        for index in range(self.settings.flow_transforms):
            kept = (features + 1 - index % 2) // 2  # every second weight, in turns
            total += sum((n_in + 1) * n_out for n_in, n_out in pairwise((kept, *hidden, 2 * (features - kept))))
        if total > LARGEST_THETA:
            raise ConfigError(
                f"a flow over the {features:,} weights of this network has {total:,} parameters, more than {LARGEST_THETA:,}; choose a "
                "smaller network, narrower posterior.flow_hidden or fewer posterior.flow_transforms, or a method such as pr-bbb"
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
    )
)
