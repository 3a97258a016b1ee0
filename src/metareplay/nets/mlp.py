"""Multilayer perceptrons of any width. An ordinary module that knows nothing about hypernetworks."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import final

import torch
from torch import Tensor, nn

from metareplay.limits import WITH_POSTERIOR, refuse_layers
from metareplay.nets.activations import activation_named
from metareplay.nets.base import ActivationSettings, NetworkFactory, NetworkPart, register_network
from metareplay.settings import Composition


@final
class MLP(nn.Module):
    """Fully connected layers; inputs of any shape are flattened. Weights start Xavier-uniform, biases at zero."""

    def __init__(
        self, input_shape: Sequence[int], hidden: Sequence[int], outputs: int, activation: str = "relu"
    ) -> None:
        super().__init__()
        self.activation = activation_named(activation)
        widths = (prod(input_shape), *hidden, outputs)
        refuse_layers(widths, "a multilayer perceptron")
        layers = [nn.Linear(n_in, n_out) for n_in, n_out in pairwise(widths)]
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        h = x.flatten(1)  # (B, ...) -> (B, D)
        for index, layer in enumerate(self.layers):
            h = layer(h if index == 0 else self.activation(h))
        return h  # (B, outputs)

    def run_samples(self, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Outputs (S, B, outputs) under S sets of weights by name, each of shape (S, ...).

        Examples are the last dimension internally, so that a weight's gradient is laid out like the weight, without a
        transposed copy.
        """
        h = x.flatten(1).mT.expand(len(weights["layers.0.weight"]), -1, -1)  # (B, ...) -> (S, D, B)
        for index in range(len(self.layers)):
            weight, bias = weights[f"layers.{index}.weight"], weights[f"layers.{index}.bias"]
            h = h if index == 0 else self.activation(h)
            h = torch.baddbmm(bias.unsqueeze(-1), weight, h)  # (S, D, B) -> (S, H, B)
        return h.mT  # (S, outputs, B) -> (S, B, outputs)


def _build_mlp(name: str, input_shape: tuple[int, ...], parts: Composition) -> NetworkFactory:
    hidden = tuple(int(width) for width in name.split("-")[1:])
    activation = parts.get(ActivationSettings).activation
    return mlp_factory(name, input_shape, hidden, activation)


def mlp_factory(name: str, input_shape: Sequence[int], hidden: Sequence[int], activation: str) -> NetworkFactory:
    """What builds the main network; one that would not fit into memory with its posterior is refused."""

    def build(outputs: int) -> MLP:
        refuse_layers((prod(input_shape), *hidden, outputs), f"the network {name}", WITH_POSTERIOR)
        return MLP(input_shape, hidden, outputs, activation)

    return build


register_network(
    NetworkPart(
        name="mlp",
        phrase="a multilayer perceptron",
        settings=(ActivationSettings,),
        pattern=r"mlp(-[1-9]\d{0,11})*",
        title="mlp-WIDTH-WIDTH-...",
        description="multilayer perceptron with these hidden widths, e.g. mlp-400-400; mlp alone is linear",
        build=_build_mlp,
        multilayer=True,
    )
)
