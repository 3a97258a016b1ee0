"""What the image networks share: which inputs suit them, and how their weights start."""

from collections.abc import Sequence

from torch import nn

from metareplay.errors import ConfigError


def check_image_shape(network: str, shape: Sequence[int], smallest: int) -> tuple[int, int, int]:
    """Channels, height and width of the inputs; anything but images that are large enough is refused."""
    if len(shape) != 3:
        hint = f"; give single-channel images the shape {(1, *shape)}" if len(shape) == 2 else "; choose an MLP"
        raise ConfigError(f"{network} needs images as (channels, height, width), but the inputs have shape {tuple(shape)}{hint}")
    channels, height, width = shape
    if min(height, width) < smallest:
        raise ConfigError(
            f"{network} needs images of at least {smallest} x {smallest} pixels as (channels, height, width), but the inputs have shape "
            f"{tuple(shape)}; choose a smaller network, e.g. an MLP"
        )
    return channels, height, width


def start_xavier(network: nn.Module) -> None:
    """Weights of linear and convolutional layers Xavier-uniform, biases zero; normalisations keep scale one and shift zero."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
