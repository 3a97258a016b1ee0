"""Networks by name: ``mlp-400-400`` is a multilayer perceptron with two hidden layers of 400 units; ``module:function`` is yours."""

import difflib
import re

import torch
from torch import Generator, nn

from metareplay.errors import ConfigError
from metareplay.nets import lenet, mlp, own, resnet
from metareplay.nets.base import NETWORKS, NetworkFactory, NetworkPart
from metareplay.nets.weights import own_generator_seed
from metareplay.parts import Alone
from metareplay.settings import Composition

BUILT_IN = (mlp, lenet, resnet, own)
"""The modules that register our networks."""


def network_kind(name: str) -> NetworkPart:
    """The network, or the kind of networks, that a name follows the pattern of; others are refused."""
    part = next((part for part in NETWORKS.values() if re.fullmatch(part.pattern, name)), None)
    if part is None:
        close = difflib.get_close_matches(name.lower(), [*NETWORKS, "mlp-100-100"], n=1, cutoff=0.7)
        hint = f"; did you mean {close[0]}?" if close else ";"
        titles = ", ".join(part.title for part in listed_networks())
        raise ConfigError(f"network={name!r} is unknown{hint} choose one of {titles}")
    return part


def listed_networks() -> list[NetworkPart]:
    """All networks, for lists: a user's own comes last."""
    return sorted(NETWORKS.values(), key=lambda part: part.name == "own")


def network_part(name: str) -> NetworkPart:
    """The same, but a name that nobody can build is refused too; a module of the user's own is imported."""
    part = network_kind(name)
    part.check(name)
    return part


def network_factory(name: str, input_shape: tuple[int, ...], parts: Composition | None = None) -> NetworkFactory:
    """What builds the named network for inputs of this shape; a shape that does not suit is refused."""
    return network_part(name).build(name, input_shape, parts or Alone())


def is_mlp(name: str) -> bool:
    """Whether a name stands for one of our multilayer perceptrons."""
    return re.fullmatch(NETWORKS["mlp"].pattern, name) is not None


def is_own(name: str) -> bool:
    """Whether a name stands for a user's own function."""
    return ":" in name


def build_seeded(factory: NetworkFactory, outputs: int, generator: Generator) -> nn.Module:
    """Build a network whose own initialisation depends on the generator alone, whatever the module draws from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(own_generator_seed(generator))
        return factory(outputs)
