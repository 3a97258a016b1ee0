"""Networks as parts, and what image networks share: the inputs they accept, and how weights are initialised."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pydantic import Field
from torch import Tensor, nn

from metareplay.errors import ConfigError
from metareplay.nets.activations import Activation
from metareplay.parts import Registry
from metareplay.settings import Composition, Part, Settings

NetworkFactory = Callable[[int], nn.Module]
"""Builds the network with a given number of outputs, freshly initialised."""


@runtime_checkable
class SeesInputs(Protocol):
    """A factory whose networks depend on what the inputs are like."""

    def see(self, x: Tensor) -> None:
        """Inputs of the first task (N, ...), before any network is built for it."""
        ...


class ActivationSettings(Settings):
    """A network whose activation can be chosen."""

    activation: Activation = Field("relu", description="activation of the main network")


@dataclass(frozen=True, kw_only=True)
class NetworkPart(Part):
    """A network, or a kind of network whose names follow a pattern."""

    pattern: str
    """A regular expression for the names."""
    title: str
    """How lists show the name."""
    description: str
    build: Callable[[str, tuple[int, ...], Composition], NetworkFactory]
    """From name and input shape; unsuitable inputs are refused."""
    multilayer: bool = False
    """Whether it builds multilayer perceptrons, for which some computations have a closed form."""
    normalised: bool = False
    """Whether its layers are followed by normalisation, so that neither noise nor large steps change their scale."""
    check: Callable[[str], object] = lambda name: None
    """Refuses, with a ConfigError, a name that follows the pattern but cannot be built."""


NETWORKS: Registry[NetworkPart] = Registry("network", "runs")
register_network = NETWORKS.register


def register_image_network(
    name: str,
    network: Callable[[tuple[int, ...], int, str], nn.Module],
    smallest: int,
    description: str,
    *,
    normalised: bool = False,
    replace: bool = False,
) -> None:
    """A network for images of at least ``smallest`` pixels a side, whose activation can be chosen."""

    def build(name: str, input_shape: tuple[int, ...], parts: Composition) -> NetworkFactory:
        check_image_shape(name, input_shape, smallest)
        activation = parts.get(ActivationSettings).activation
        return lambda outputs: network(input_shape, outputs, activation)

    settings = (ActivationSettings,)
    register_network(
        NetworkPart(
            name=name,
            phrase=name,
            settings=settings,
            pattern=name,
            title=name,
            description=description,
            build=build,
            normalised=normalised,
        ),
        replace=replace,
    )


def check_image_shape(network: str, shape: Sequence[int], smallest: int) -> tuple[int, int, int]:
    """Channels, height and width of the inputs; anything but images that are large enough is refused."""
    if len(shape) != 3:
        hint = f"; give single-channel images the shape {(1, *shape)}" if len(shape) == 2 else "; choose an MLP"
        raise ConfigError(
            f"{network} needs images as (channels, height, width), but the inputs have shape {tuple(shape)}{hint}"
        )
    channels, height, width = shape
    if min(height, width) < smallest:
        raise ConfigError(
            f"{network} needs images of at least {smallest} x {smallest} pixels as (channels, height, width), "
            f"but the inputs have shape {tuple(shape)}; choose a smaller network, e.g. an MLP"
        )
    return channels, height, width


def start_xavier(network: nn.Module) -> None:
    """Xavier-uniform weights and zero biases in linear and convolutional layers; normalisation layers stay as built."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
