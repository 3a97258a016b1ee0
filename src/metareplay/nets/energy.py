"""Networks of energies: how well an input and a label fit together, one number for each pair [Li2020].

The label enters by an embedding, which gates the units of the first hidden layer; the layers after it are shared by all
labels. Outputs are *negative* energies, so that the highest output is the label of lowest energy, as elsewhere.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import final

import torch
from torch import Tensor, nn

from metareplay.limits import WITH_POSTERIOR, refuse_layers
from metareplay.nets.activations import activation_named
from metareplay.nets.base import ActivationSettings, NetworkFactory, NetworkPart, register_network
from metareplay.settings import Composition


def with_labels(x: Tensor, labels: Tensor) -> Tensor:
    """Inputs (B, ...) that name the labels (B, K) whose energies are wanted: (B, D + K)."""
    return torch.cat([x.flatten(1), labels.to(x)], dim=1)


@final
class EnergyMLP(nn.Module):
    """-E(x, y) for inputs and labels: fully connected layers, of which the first is gated by the label.

    A new label is one more row of ``gates``: nothing else grows. Weights start Xavier-uniform, biases at zero, gates
    normal: each label uses the shared layers in its own way.
    """

    def __init__(
        self, input_shape: Sequence[int], hidden: Sequence[int], labels: int, activation: str = "relu"
    ) -> None:
        super().__init__()
        self.activation, self.inputs = activation_named(activation), prod(input_shape)
        layers = [nn.Linear(n_in, n_out) for n_in, n_out in pairwise((self.inputs, *hidden, 1))]
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.layers, self.gates = nn.ModuleList(layers), nn.Parameter(torch.randn(labels, hidden[0]))

    def forward(self, x: Tensor) -> Tensor:
        """(B, ...) -> (B, labels); inputs that name K labels (``with_labels``) -> (B, K)."""
        flat = x.flatten(1)  # (B, ...) -> (B, D), or (B, D + K)
        asked = flat[:, self.inputs :]  # (B, K)
        gates = self.gates[asked.long()] if asked.shape[1] else self.gates.unsqueeze(0)  # (B, K, H), or (1, C, H)
        h = self.layers[0](flat[:, : self.inputs]).unsqueeze(1) * gates  # g(y) * (W x + b); (B, K, H)
        for layer in self.layers[1:]:
            h = layer(self.activation(h))
        return h.squeeze(-1)  # (B, K, 1) -> (B, K)


def _build_energy(name: str, input_shape: tuple[int, ...], parts: Composition) -> NetworkFactory:
    hidden = tuple(int(width) for width in name.split("-")[1:])
    activation = parts.get(ActivationSettings).activation

    def build(outputs: int) -> EnergyMLP:
        refuse_layers((prod(input_shape), *hidden, 1), f"the network {name}", WITH_POSTERIOR)
        return EnergyMLP(input_shape, hidden, outputs, activation)

    return build


def is_energy(name: str) -> bool:
    """Whether a name is that of a network of energies."""
    return name.startswith("energy-")


register_network(
    NetworkPart(
        name="energy",
        phrase="a network of energies",
        settings=(ActivationSettings,),
        pattern=r"energy(-[1-9]\d{0,11})+",
        title="energy-WIDTH-WIDTH-...",
        description="multilayer perceptron of an input and a label, whose embedding gates the first hidden layer; "
        "its outputs are negative energies, e.g. energy-400-400",
        build=_build_energy,
    )
)
