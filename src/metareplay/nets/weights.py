"""WeightSpec: any ``nn.Module`` as a function of one flat weight vector."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call

from metareplay.errors import ConfigError

JACOBIAN_ELEMENTS = 2**25
"""Elements of the derivatives that are held at once, 128 MiB in float32."""


@dataclass(frozen=True)
class WeightSpec:
    """Names and shapes of a module's weights, in the order in which the flat vector holds them."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    groups: Tensor | None = field(default=None, compare=False, repr=False)
    """Which weights came together, once the outputs have grown (W,); None: each weight tensor is a group."""

    @classmethod
    def of(cls, module: nn.Module) -> "WeightSpec":
        """The specification of a module; weight tying and running statistics are refused."""
        named = list(module.named_parameters(remove_duplicate=False))
        if not named:
            raise ConfigError(f"{type(module).__name__} has no weights; a network needs at least one trainable parameter")
        seen: dict[int, str] = {}
        for name, parameter in named:
            if id(parameter) in seen:
                raise ConfigError(
                    f"the weights {seen[id(parameter)]!r} and {name!r} of {type(module).__name__} are one tensor; "
                    "tied weights cannot have a posterior each: give the layers weights of their own"
                )
            seen[id(parameter)] = name
        if buffers := [name for name, _ in module.named_buffers() if "running_" in name]:
            raise ConfigError(
                f"{type(module).__name__} keeps running statistics ({', '.join(buffers[:3])}), which would be shared by all tasks; "
                "use a normalisation without them, e.g. LayerNorm, GroupNorm or BatchNorm(track_running_stats=False)"
            )
        return cls(tuple(name for name, _ in named), tuple(parameter.shape for _, parameter in named))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of elements of each weight."""
        return tuple(prod(shape) for shape in self.shapes)

    @cached_property
    def numel(self) -> int:
        """Length of the flat vector."""
        return sum(self.sizes)

    def flatten(self, module: nn.Module) -> Tensor:
        """The module's own weights as one detached vector."""
        weights = dict(module.named_parameters())
        return torch.cat([weights[name].detach().reshape(-1) for name in self.names])  # (W,)

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of the flat vector, named and shaped as the module's weights; leading dimensions are kept."""
        if flat.shape[-1] != self.numel:
            raise ConfigError(f"the flat weight vector has {flat.shape[-1]} elements; this network has {self.numel} weights")
        parts = flat.split(self.sizes, dim=-1)  # one split: a single gradient buffer in the backward pass
        return {
            name: part.view((*flat.shape[:-1], *shape)) for name, shape, part in zip(self.names, self.shapes, parts, strict=True)
        }  # (..., W) -> (..., *shape)

    def grown_from(self, smaller: "WeightSpec") -> "WeightSpec":
        """This specification, knowing which weights the network had before its outputs grew: the others are groups of their own."""
        own = torch.repeat_interleave(torch.arange(len(self.sizes)), torch.tensor(self.sizes))  # (W,)
        before = smaller.groups
        if before is None:
            before = torch.repeat_interleave(torch.arange(len(smaller.sizes)), torch.tensor(smaller.sizes))
        groups = own + int(before.max()) + 1
        groups[smaller.positions_in(self)] = before
        return replace(self, groups=groups.unique(return_inverse=True)[1])

    def positions_in(self, larger: "WeightSpec") -> Tensor:
        """Where each of this network's weights stands in the flat vector of the same network with more outputs.

        Every weight of the larger network holds the smaller one's as its leading corner.
        """
        positions = torch.arange(larger.numel).split(larger.sizes)
        corners = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            index = larger.names.index(name)
            block = positions[index].view(larger.shapes[index])
            corners.append(block[tuple(slice(0, size) for size in shape)].reshape(-1))
        return torch.cat(corners)  # (W,)


def run_flat(module: nn.Module, spec: WeightSpec, weights: Tensor, x: Tensor) -> Tensor:
    """Outputs of the module under weight samples (S, W) for inputs (B, ...): (S, B, C), batched over the samples."""
    if weights.shape[0] == 1:  # no vmap needed
        return functional_call(module, spec.unflatten(weights[0]), (x,)).unsqueeze(0)  # (B, C) -> (1, B, C)

    def single(flat: Tensor) -> Tensor:
        outputs: Tensor = functional_call(module, spec.unflatten(flat), (x,))
        return outputs

    try:
        outputs: Tensor = torch.func.vmap(single, randomness="different")(weights)  # (S, W) -> (S, B, C)
    except RuntimeError as error:
        if "Batching rule not implemented" not in str(error):
            raise
        outputs = torch.stack([single(flat) for flat in weights])  # layers that cannot be batched, e.g. recurrent ones; (S, B, C)
    return outputs


def linearised_outputs(
    module: nn.Module, spec: WeightSpec, mean: Tensor, scale: Tensor, x: Tensor, columns: slice = slice(None)
) -> tuple[Tensor, Tensor]:
    """Mean (B, C) and covariance (B, C, C) of some outputs of the module, linearised at ``mean``, under Gaussian weights.

    With J the derivative of an input's outputs by the weights, their covariance is J diag(scale^2) J': exact, without weight samples.
    """

    def outputs(flat: Tensor, single: Tensor) -> Tensor:
        found: Tensor = functional_call(module, spec.unflatten(flat), (single.unsqueeze(0),))[0]  # (1, ...) -> (C,)
        return found[columns]

    slopes_of = torch.func.vmap(torch.func.jacrev(outputs), in_dims=(None, 0))
    width = functional_call(module, spec.unflatten(mean), (x[:1],))[0, columns].numel()
    at_once = max(1, JACOBIAN_ELEMENTS // (width * spec.numel))
    means, covariances = [], []
    for part in x.split(at_once):
        scaled = slopes_of(mean, part) * scale  # (b, C, W)
        covariances.append(scaled @ scaled.mT)  # (b, C, C)
        means.append(functional_call(module, spec.unflatten(mean), (part,))[:, columns])  # (b, C)
    return torch.cat(means), torch.cat(covariances)


def own_generator_seed(generator: Generator) -> int:
    """A seed drawn from a generator, for code that only knows PyTorch's global random state."""
    return int(torch.randint(2**62, (1,), generator=generator))
