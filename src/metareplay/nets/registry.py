"""Networks by name: ``mlp-400-400`` is an MLP with two hidden layers of 400 units; ``module:function`` is your own."""

import difflib
import re

import torch
from torch import Generator, nn

from metareplay.errors import ConfigError
from metareplay.nets import adapters, backbones, efficientnet, energy, lenet, mlp, own, resnet
from metareplay.nets.backbones import has_backbone, is_features, split_name
from metareplay.nets.base import NETWORKS, NetworkFactory, NetworkPart
from metareplay.nets.weights import global_seed_from
from metareplay.parts import Alone
from metareplay.settings import Composition

BUILT_IN = (mlp, lenet, resnet, backbones, efficientnet, adapters, energy, own)
"""The modules that register the built-in networks."""


def network_kind(name: str) -> NetworkPart:
    """The network, or kind of network, whose pattern matches a name; unknown names are refused."""
    part = next((part for part in NETWORKS.values() if re.fullmatch(part.pattern, name)), None)
    if part is None:
        close = difflib.get_close_matches(name.lower(), [*NETWORKS, "mlp-100-100"], n=1, cutoff=0.7)
        hint = f"; did you mean {close[0]}?" if close else ";"
        titles = ", ".join(part.title for part in listed_networks())
        raise ConfigError(f"network={name!r} is unknown{hint} choose one of {titles}")
    return part


def listed_networks() -> list[NetworkPart]:
    """All networks, for lists: MLPs first, a user's own last, whatever was imported first."""
    return sorted(NETWORKS.values(), key=lambda part: (part.name != "mlp", part.name == "own"))


def network_part(name: str) -> NetworkPart:
    """Like ``network_kind``, but a name that cannot be built is refused too; a user's own module is imported."""
    part = network_kind(name)
    part.check(name)
    return part


def network_factory(name: str, input_shape: tuple[int, ...], parts: Composition | None = None) -> NetworkFactory:
    """What builds the named network for inputs of this shape; an unsuitable shape is refused."""
    return network_part(name).build(name, input_shape, parts or Alone())


def is_mlp(name: str) -> bool:
    """Whether a name is that of a built-in multilayer perceptron, of inputs or of features."""
    return re.fullmatch(NETWORKS["mlp"].pattern, head_of(name)) is not None


def is_linear(name: str) -> bool:
    """Whether a name is that of a single linear layer."""
    return head_of(name) == "mlp"


def is_own(name: str) -> bool:
    """Whether a name is that of a user's own function."""
    return ":" in name and not has_backbone(name)


def head_of(name: str) -> str:
    """The network that learns: behind the features of a backbone the small one."""
    return split_name(name)[1] if is_features(name) else name


def build_seeded(factory: NetworkFactory, outputs: int, generator: Generator) -> nn.Module:
    """Build a network whose initialisation depends only on the generator, whatever it draws random numbers from."""
    with torch.random.fork_rng(devices=[]):
        seed = global_seed_from(generator)
        if torch.accelerator.is_available():
            torch.manual_seed(seed)
        else:  # the same, without writing down the stack for devices that are not there: half of a small network's time
            torch.default_generator.manual_seed(seed)
        return factory(outputs)
