"""Networks by name: ``mlp-400-400`` is a multilayer perceptron with two hidden layers of 400 units."""

import re
from collections.abc import Callable

import torch
from torch import Generator, nn

from metareplay.errors import ConfigError
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import own_generator_seed

NETWORKS: dict[str, str] = {"mlp-WIDTH-WIDTH-...": "multilayer perceptron with these hidden widths, e.g. mlp-400-400; mlp alone is linear"}

NetworkFactory = Callable[[int], nn.Module]
"""Builds the network with a given number of outputs, freshly initialised."""


def check_network_name(name: str) -> None:
    """Refuse a network that nobody can build."""
    if not re.fullmatch(r"mlp(-[1-9]\d*)*", name):
        raise ConfigError(f"network={name!r} is unknown; choose one of {', '.join(NETWORKS)}")


def network_factory(name: str, input_shape: tuple[int, ...], activation: str = "relu") -> NetworkFactory:
    """What builds the named network for inputs of this shape."""
    check_network_name(name)
    hidden = tuple(int(width) for width in name.split("-")[1:])
    return lambda outputs: MLP(input_shape, hidden, outputs, activation)


def build_seeded(factory: NetworkFactory, outputs: int, generator: Generator) -> nn.Module:
    """Build a network whose own initialisation depends on the generator alone, whatever the module draws from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(own_generator_seed(generator))
        return factory(outputs)
