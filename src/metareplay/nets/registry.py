"""Networks by name: ``mlp-400-400`` is a multilayer perceptron with two hidden layers of 400 units; ``module:function`` is a user's own."""

import difflib
import re
from collections.abc import Callable

import torch
from torch import Generator, nn

from metareplay.errors import ConfigError
from metareplay.nets.base import check_image_shape
from metareplay.nets.lenet import SMALLEST as SMALLEST_LENET
from metareplay.nets.lenet import LeNet
from metareplay.nets.mlp import MLP
from metareplay.nets.own import build_own, load_function
from metareplay.nets.resnet import SMALLEST as SMALLEST_RESNET
from metareplay.nets.resnet import resnet_18, resnet_32, wrn_28_10
from metareplay.nets.weights import own_generator_seed

NETWORKS: dict[str, str] = {
    "mlp-WIDTH-WIDTH-...": "multilayer perceptron with these hidden widths, e.g. mlp-400-400; mlp alone is linear",
    "lenet": "20 and 50 feature maps of 5 x 5, 500 units; images from 16 x 16 pixels",
    "resnet-32": "residual network for small images: 32 layers, 16 to 64 channels; images from 8 x 8 pixels",
    "resnet-18": "residual network of 18 layers, 64 to 512 channels, with a first layer for small images; from 8 x 8 pixels",
    "wrn-28-10": "wide residual network: 28 layers, 160 to 640 channels, 36.5 million weights; from 8 x 8 pixels",
    "MODULE:FUNCTION": "your own: a function of (input_shape, outputs) or (outputs) that returns any nn.Module",
}

NetworkFactory = Callable[[int], nn.Module]
"""Builds the network with a given number of outputs, freshly initialised."""

IMAGE_NETWORKS: dict[str, tuple[Callable[[tuple[int, ...], int, str], nn.Module], int]] = {
    "lenet": (LeNet, SMALLEST_LENET),
    "resnet-32": (resnet_32, SMALLEST_RESNET),
    "resnet-18": (resnet_18, SMALLEST_RESNET),
    "wrn-28-10": (wrn_28_10, SMALLEST_RESNET),
}
"""What builds each network for images, and the smallest side of its inputs in pixels."""


def is_mlp(name: str) -> bool:
    """Whether a name stands for one of our multilayer perceptrons."""
    return re.fullmatch(r"mlp(-[1-9]\d*)*", name) is not None


def is_own(name: str) -> bool:
    """Whether a name stands for a user's own function."""
    return ":" in name


def check_network_name(name: str) -> None:
    """Refuse a network that nobody can build."""
    if is_own(name):
        load_function(name)
    elif not is_mlp(name) and name not in IMAGE_NETWORKS:
        close = difflib.get_close_matches(name.lower(), [*IMAGE_NETWORKS, "mlp-100-100"], n=1, cutoff=0.7)
        hint = f"; did you mean {close[0]}?" if close else ";"
        raise ConfigError(f"network={name!r} is unknown{hint} choose one of {', '.join(NETWORKS)}")


def network_factory(name: str, input_shape: tuple[int, ...], activation: str = "relu") -> NetworkFactory:
    """What builds the named network for inputs of this shape; a shape that does not suit is refused."""
    check_network_name(name)
    if is_own(name):
        function = load_function(name)
        return lambda outputs: build_own(name, function, input_shape, outputs)
    if name in IMAGE_NETWORKS:
        build, smallest = IMAGE_NETWORKS[name]
        check_image_shape(name, input_shape, smallest)
        return lambda outputs: build(input_shape, outputs, activation)
    hidden = tuple(int(width) for width in name.split("-")[1:])
    return lambda outputs: MLP(input_shape, hidden, outputs, activation)


def build_seeded(factory: NetworkFactory, outputs: int, generator: Generator) -> nn.Module:
    """Build a network whose own initialisation depends on the generator alone, whatever the module draws from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(own_generator_seed(generator))
        return factory(outputs)
