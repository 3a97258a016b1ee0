"""Activation functions by name."""

from typing import Literal

from torch import nn

from metareplay.errors import ConfigError

Activation = Literal["relu", "sigmoid", "tanh", "elu", "linear"]
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "linear": nn.Identity,
}


def activation_named(name: str) -> nn.Module:
    """The activation function with this name."""
    if name not in ACTIVATIONS:
        raise ConfigError(f"activation={name!r} is unknown; choose one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]()
