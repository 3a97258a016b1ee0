"""Low-rank adapters: y = W x + (alpha / r) B A x with a frozen W [Hu2021], on linear layers and convolutions.

What is trained in the place of A is a = sqrt(n) A, where n is the number of inputs of the layer. The prior of a weight
is the same for all layers, so it has to mean the same for wide and narrow ones: for a, B ~ N(0, 1) and inputs of
variance one, B A x has variance r, whatever n is. B starts at zero, as in [Hu2021], and a uniform in [-0.3, 0.3]: a
chunked hypernetwork cannot give B alone a variance of zero, and where both factors start small their product is tiny.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from math import prod
from typing import NamedTuple, cast, final

import torch
from torch import Tensor, nn

from metareplay.errors import ConfigError, listed
from metareplay.limits import WITH_POSTERIOR, refuse_layers

ATTENTION = ("query", "value", "q_proj", "v_proj", "q_lin", "v_lin", "query_proj", "value_proj", "qkv", "q", "v")
"""How encoders call the layers that make queries and values, which [Hu2021] adapts."""
FIRST, SECOND = "lora_A", "lora_B"
Layer = nn.Linear | nn.Conv2d
START = 0.3
"""What is trained in the place of A starts between minus this and this."""


class Factors(NamedTuple):
    """A and B of one layer, as they are in the equation."""

    first: Tensor
    second: Tensor


@final
class LowRankLayer(nn.Module):
    """A frozen linear layer or convolution, with an adapter in parallel."""

    def __init__(self, base: Layer, rank: int, alpha: float) -> None:
        super().__init__()
        inputs = prod(base.weight.shape[1:])
        refuse_layers((inputs, rank, base.weight.shape[0]), "an adapter", WITH_POSTERIOR)
        self.base, self.shrink, self.factor = base, inputs**-0.5, alpha / rank
        self.lora_A, self.lora_B = _factors(base, rank)
        nn.init.uniform_(self.lora_A.weight, -START, START)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.lora_B(self.lora_A(x))
        return cast(Tensor, self.base(x)) + (self.factor * self.shrink) * change  # W x + (alpha / r) B A x [Hu2021]

    @property
    def weight(self) -> Tensor:
        """W + (alpha / r) B A, for code that takes a layer's weight instead of calling it."""
        first, second = self.lora_A.weight.flatten(1), self.lora_B.weight.flatten(1)  # (r, n), (m, r)
        return self.base.weight + (self.factor * self.shrink) * (second @ first).view_as(self.base.weight)

    @property
    def bias(self) -> Tensor | None:
        """That of the frozen layer."""
        return self.base.bias


def _factors(base: Layer, rank: int) -> tuple[Layer, Layer]:
    if isinstance(base, nn.Linear):
        return nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)
    first = nn.Conv2d(
        base.in_channels,
        rank,
        cast(tuple[int, int], base.kernel_size),
        cast(tuple[int, int], base.stride),
        cast(tuple[int, int] | str, base.padding),
        bias=False,
    )
    return first, nn.Conv2d(rank, base.out_channels, 1, bias=False)


def is_adaptable(layer: nn.Module) -> bool:
    """Whether a layer can have an adapter: a linear layer, or a plain two-dimensional convolution of all channels.

    A convolution with a ``forward`` of its own may pad in its own way, unless it looks at one pixel at a time.
    """
    if isinstance(layer, nn.Conv2d):
        padded = set(layer.kernel_size) != {1} and type(layer).forward is not nn.Conv2d.forward
        return not padded and layer.groups == 1 and set(layer.dilation) == {1} and layer.padding_mode == "zeros"
    return isinstance(layer, nn.Linear)


def chosen_names(backbone: str, module: nn.Module, called: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The layers that get adapters, of those that are ``called``.

    Without patterns: those that make queries and values, else all linear layers, else all convolutions.
    """
    layers = {name: module.get_submodule(name) for name in called}
    if not layers:
        raise ConfigError(
            f"the backbone {backbone} runs no linear layer and no plain two-dimensional convolution that could have an "
            "adapter; learn from its features instead: network=features:..."
        )
    if not patterns:
        attention = [name for name in layers if name.rpartition(".")[2] in ATTENTION]
        linear = [name for name, layer in layers.items() if isinstance(layer, nn.Linear)]
        return attention or linear or list(layers)
    for pattern in patterns:
        if not any(matches(name, pattern) for name in layers):
            raise ConfigError(
                f"adapters.layers: {pattern!r} matches none of the layers of the backbone {backbone} that can have an "
                f"adapter: {listed(list(layers))}"
            )
    return [name for name in layers if any(matches(name, pattern) for pattern in patterns)]


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern (``*`` is anything) fits a layer's name or the end of it: ``query``, ``layer.0.*``."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}")


def add_adapters(module: nn.Module, names: Sequence[str], rank: int, alpha: float) -> None:
    """Add adapters in parallel to some layers; a layer that is in several places has the same in all."""
    adapted = {id(layer): LowRankLayer(cast(Layer, layer), rank, alpha) for layer in map(module.get_submodule, names)}
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()) if not isinstance(parent, LowRankLayer) else ():
            if id(child) in adapted:
                setattr(parent, name, adapted[id(child)])


@torch.no_grad()
def factors_of(layer: LowRankLayer, first: Tensor, second: Tensor) -> Factors:
    """A and B from trained weights; for several sets of these, (..., r, n) and (..., m, r), as many."""
    return Factors(first * layer.shrink, second)
