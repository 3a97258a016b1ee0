"""Implicit posteriors: a weight generator WG turns noise into weights [Henning2021, sm:sec:pr:implicit].

theta holds WG's own weights. Sampling is easy, the density is unknown; the prior-matching term is estimated
(matching/ssge.py, matching/avb.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, prod
from typing import Literal, cast, final

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor, nn

from metareplay.column_blocks import ColumnBlocks
from metareplay.errors import ConfigError
from metareplay.nets.activations import Activation, activation_named
from metareplay.nets.mlp import MLP
from metareplay.nets.registry import build_seeded
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.base import FamilyPart, register_family
from metareplay.posteriors.families.dirac import initial_weight_variances
from metareplay.posteriors.products import FEW_WEIGHTS, FactoredSamples
from metareplay.posteriors.settings import NetworkStartSettings
from metareplay.seeding import normal
from metareplay.settings import Composition, Widths

CHUNKS = "chunk_embeddings"


class ImplicitSettings(NetworkStartSettings):
    """The weight generator WG."""

    generator_hidden: Widths = Field((10, 10), description="widths of the weight generator's hidden layers")
    generator_activation: Activation = Field("tanh", description="activation of the weight generator")
    generator_chunk_size: int | None = Field(
        None, ge=1, description="weights that the generator outputs at once, chunk by chunk; null: all"
    )
    generator_chunk_embedding_size: int = Field(32, ge=1, description="length of the generator's chunk embeddings")
    generator_chunk_embedding_std: float = Field(
        1.0, gt=0, description="initial standard deviation of the generator's chunk embeddings"
    )
    generator_start: Literal["xavier", "hyperfan"] = Field(
        "xavier",
        description="initialisation of a generator that is not itself generated; hyperfan: weights of variance 1 / "
        "fan-in",
    )
    latent_size: int = Field(32, ge=1, description="length of the generator's noise input")
    latent_std: float = Field(1.0, gt=0, description="standard deviation of the noise")
    support_noise: float | None = Field(
        0.02, gt=0, description="noise on each generated weight, in units of latent_std; null: none"
    )

    def without_effect(self, composition: Composition) -> Mapping[str, str]:
        """The generator's own start, where its weights are generated."""
        unused = super().without_effect(composition)
        if not getattr(composition.parts()["task map"], "generated", False):
            return unused
        reason = "a hypernetwork generates the generator's weights; see hypernet.initialisation"
        return {**unused, "posterior.generator_start": reason}

    def check(self, composition: Composition) -> None:
        """Chunks share their output biases, which otherwise act as the weights."""
        if self.generator_chunk_size is not None and self.generator_start == "hyperfan":
            raise ConfigError(
                "posterior.generator_start=hyperfan needs a generator without chunks: set "
                "posterior.generator_chunk_size=null, or choose xavier"
            )
        if self.generator_chunk_size is not None and self.keep_network_init:
            raise ConfigError(
                "posterior.keep_network_init needs a generator without chunks: set posterior.generator_chunk_size=null"
            )


@final
@dataclass(frozen=True)
class Implicit:
    """The distribution of w = f_WG(z[:n_z], theta) + sigma z."""

    theta: Tensor
    shape: WeightSpec
    """Names and shapes of WG's own weights, as theta holds them."""
    num_weights: int
    settings: ImplicitSettings
    places: ColumnBlocks | None = None
    """Positions of the main network's weights from the oldest to the newest, once its outputs have grown; else None."""

    @property
    def noise_size(self) -> int:
        """The number of random numbers per sample."""
        latent = self.settings.latent_size
        return latent if self.settings.support_noise is None else max(latent, self.num_weights)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the full-support noise; 0 without it."""
        return (self.settings.support_noise or 0.0) * self.settings.latent_std

    @property
    def is_put_in_order(self) -> bool:
        """Whether weights are generated oldest first and then moved to their positions in the network."""
        return self.places is not None and self.settings.generator_chunk_size is not None

    def as_generated(self) -> "Implicit":
        """The same distribution, over the weights in the order in which they are generated."""
        return replace(self, places=None)

    def products_pay(self, n: int) -> bool:
        """Whether inner products of n samples are cheaper to compute than the samples.

        For R outputs of WG: 3 n L K R for the samples, against 4 K^2 R for the products of its last layer and about
        8 n L K^2, in double precision, to carry these over to the samples.
        """
        last = self.shape.names.index(f"layers.{len(self.settings.generator_hidden)}.weight")
        outputs, width = self.shape.shapes[last]
        rows = n * ceil(self.num_weights / outputs)  # n L
        few = self.theta.dim() > 1 or self.num_weights <= FEW_WEIGHTS
        return not few and 3 * rows * outputs > (width + 1) * (4 * outputs + 8 * rows)

    def rsample(self, n: int, *, generator: Generator) -> Tensor:
        """Reparametrised samples (n, W)."""
        noise = normal(n, *self.theta.shape[:-1], self.noise_size, generator=generator, like=self.theta)
        return self.weights_at(noise.mul_(self.settings.latent_std))  # z ~ N(0, latent_std^2 I)

    def weights_at(self, z: Tensor) -> Tensor:
        """The weights generated from noise z: (n, noise_size) -> (n, W)."""
        generated = self._generated(z[..., : self.settings.latent_size])  # f_WG(z[:n_z], theta); (n, W)
        if self.settings.support_noise is None:
            return generated
        noise = z[..., : self.num_weights]
        if self.places is not None:
            noise = self.places.take(noise)  # old weights keep their noise
        # full support: second equation of sm:sec:kl:support; (n, W)
        return torch.add(generated, noise, alpha=self.settings.support_noise)

    def factored(self, n: int, *, generator: Generator) -> FactoredSamples:
        """Samples without full-support noise, as inputs and weights of WG's last layer; for a single theta (P,)."""
        z = normal(n, self.settings.latent_size, generator=generator, like=self.theta).mul_(self.settings.latent_std)
        weights = self.shape.unflatten(self.theta)
        weight, bias = self._last_layer(weights)
        h = self._last_inputs(z, weights).unflatten(0, (n, -1))  # (n L, H) -> (n, L, H)
        inputs = torch.cat([h, h.new_ones(*h.shape[:-1], 1)], dim=-1)  # v = [h; 1]; (n, L, K)
        return FactoredSamples.of(inputs, torch.cat([weight, bias.unsqueeze(1)], dim=1), self.num_weights)

    def _last_layer(self, weights: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        return _layer(weights, len(self.settings.generator_hidden))

    def _last_inputs(self, z: Tensor, weights: dict[str, Tensor]) -> Tensor:
        """Inputs of WG's last layer, a row per sample, or per sample and chunk: (n, ..., Z) -> (..., n L, H)."""
        h = z.movedim(0, -2)  # (n, ..., Z) -> (..., n, Z)
        if self.settings.generator_chunk_size is not None:
            chunks = weights[CHUNKS]  # (..., L, C)
            rows = (*h.shape[:-1], chunks.shape[-2])  # (..., n, L)
            inputs = [h.unsqueeze(-2).expand(*rows, -1), chunks.unsqueeze(-3).expand(*rows, -1)]
            h = torch.cat(inputs, dim=-1).flatten(-3, -2)  # (..., n L, Z + C)
        activation = activation_named(self.settings.generator_activation)
        for index in range(len(self.settings.generator_hidden)):
            h = activation(_linear(h, *_layer(weights, index)))  # (..., n L, D) -> (..., n L, H)
        return h

    def _generated(self, z: Tensor) -> Tensor:
        weights = self.shape.unflatten(self.theta)
        h = _linear(self._last_inputs(z, weights), *self._last_layer(weights))  # (..., n L, R)
        if self.settings.generator_chunk_size is not None:
            h = h.unflatten(-2, (len(z), -1)).flatten(-2)  # (..., n L, R) -> (..., n, L R)
            h = h.split([self.num_weights, h.shape[-1] - self.num_weights], dim=-1)[0]  # (..., n, W)
            if self.places is not None:
                h = self.places.take(h)  # chunks generate the oldest weights first
        return h.movedim(-2, 0)  # (..., n, W) -> (n, ..., W)


def _layer(weights: dict[str, Tensor], index: int) -> tuple[Tensor, Tensor]:
    return weights[f"layers.{index}.weight"], weights[f"layers.{index}.bias"]


def _linear(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer, or one per theta: (..., n, D) -> (..., n, H)."""
    return F.linear(h, weight, bias) if weight.dim() == 2 else h @ weight.mT + bias.unsqueeze(-2)


def start_by_fan_in(wg: MLP, spec: WeightSpec, generator: Generator) -> None:
    """Kaiming-uniform hidden layers; rows of the output layer so that the weights it generates vary by 1 / fan-in.

    Var(out) = H Var(a) for H inputs of mean square one, so a row of a weight with fan-in m has Var(a) = 1 / (m H).
    """
    *hidden, last = (cast(nn.Linear, layer) for layer in wg.layers)
    for layer in hidden:
        nn.init.kaiming_uniform_(layer.weight, generator=generator)
    shapes = zip(spec.shapes, spec.sizes, strict=True)
    fans = torch.cat([torch.full((size,), float(prod(shape[1:]))) for shape, size in shapes])  # 1 for biases; (W,)
    spread = (3 / (fans * last.in_features)).sqrt()  # U(-s, s) has variance s^2 / 3; (W,)
    noise = torch.rand(last.weight.shape, generator=generator) * 2 - 1
    last.weight.data.copy_(noise * spread.unsqueeze(1))  # (W, H)


@final
class ImplicitFamily:
    """theta = the weights of WG, an MLP with one output per main-network weight, or one that works chunk by chunk.

    Without chunks, WG's output biases act as the weights themselves: they start at zero, or with ``keep_network_init``
    at the network's ordinary initialisation.
    """

    name = "implicit"
    weight_sets: int | None = None

    def __init__(self, settings: ImplicitSettings) -> None:
        self.settings = settings

    @property
    def _chunked(self) -> bool:
        return self.settings.generator_chunk_size is not None

    def _widths(self, spec: WeightSpec) -> tuple[int, ...]:
        settings = self.settings
        inputs = settings.latent_size + (settings.generator_chunk_embedding_size if self._chunked else 0)
        return (inputs, *settings.generator_hidden, settings.generator_chunk_size or spec.numel)

    def shape(self, spec: WeightSpec) -> WeightSpec:
        """The weights of WG: its layers, then its chunk embeddings."""
        names, shapes = [], []
        for index, (n_in, n_out) in enumerate(pairwise(self._widths(spec))):
            names += [f"layers.{index}.weight", f"layers.{index}.bias"]
            shapes += [torch.Size((n_out, n_in)), torch.Size((n_out,))]
        if self.settings.generator_chunk_size is not None:
            names.append(CHUNKS)
            chunks = ceil(spec.numel / self.settings.generator_chunk_size)
            shapes.append(torch.Size((chunks, self.settings.generator_chunk_embedding_size)))
        return WeightSpec(tuple(names), tuple(shapes))

    def num_parameters(self, spec: WeightSpec) -> int:
        return self.shape(spec).numel

    def initial(self, network: nn.Module, spec: WeightSpec, *, generator: Generator) -> Tensor:
        inputs, *hidden, outputs = self._widths(spec)
        wg = build_seeded(lambda outputs: MLP((inputs,), hidden, outputs), outputs, generator)
        if self.settings.generator_start == "hyperfan":
            start_by_fan_in(cast(MLP, wg), spec, generator)
        theta, shape = WeightSpec.of(wg).flatten(wg), self.shape(spec)
        if self._chunked:
            embeddings = torch.randn(shape.sizes[-1], generator=generator) * self.settings.generator_chunk_embedding_std
            return torch.cat([theta, embeddings])  # (P,)
        if self.settings.keep_network_init:
            theta[self.weight_mask(spec)] = spec.flatten(network)
        return theta

    def initial_variances(self, network: nn.Module, spec: WeightSpec) -> Tensor:
        shape, parts = self.shape(spec), []
        for name, size in zip(shape.names, shape.sizes, strict=True):
            variance = self.settings.generator_chunk_embedding_std**2 if name == CHUNKS else 0.0  # biases start at zero
            if name.endswith("weight"):
                variance = 2 / sum(shape.shapes[shape.names.index(name)])  # Xavier
            parts.append(torch.full((size,), variance))
        variances = torch.cat(parts)  # (P,)
        if self.settings.keep_network_init and not self._chunked:
            variances[self.weight_mask(spec)] = initial_weight_variances(network, spec)
        return variances

    def weight_mask(self, spec: WeightSpec) -> Tensor:
        """WG's output biases; none where chunks share them."""
        size = self.num_parameters(spec)
        return torch.zeros(size, dtype=torch.bool) if self._chunked else torch.arange(size) >= size - spec.numel

    def at(self, theta: Tensor, spec: WeightSpec) -> Implicit:
        return Implicit(theta, self.shape(spec), spec.numel, self.settings, spec.from_oldest)

    def while_training(self, theta: Tensor, spec: WeightSpec) -> Implicit:
        return self.at(theta, spec)

    def positions_in(self, spec: WeightSpec, larger: WeightSpec) -> Tensor:
        size = self.num_parameters(spec)
        if self._chunked:
            return torch.arange(size)  # newer weights use later outputs, then new chunks at the end
        rows, width = spec.positions_in(larger), self._widths(spec)[-2]  # an output moves with its weight
        before = size - (width + 1) * spec.numel
        weights = before + rows.unsqueeze(1) * width + torch.arange(width)  # (W, H)
        return torch.cat([torch.arange(before), weights.flatten(), before + larger.numel * width + rows])  # (P,)


register_family(
    FamilyPart(
        name="implicit",
        phrase="implicit posteriors",
        settings=(ImplicitSettings,),
        build=lambda parts: ImplicitFamily(parts.get(ImplicitSettings)),
        posterior=Implicit,
        matching="ssge",
        correlated=True,
    )
)
