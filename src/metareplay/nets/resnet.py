"""Residual networks for small images [He2016; Zagoruyko2016; Henning2021, SM sec. SplitCIFAR-10, SplitCIFAR-100].

Ordinary modules. Biases and shortcuts follow the published runs: ResNet-32 has biases in all layers and shortcuts
without weights; ResNet-18 and WRN-28-10 have a bias in the last layer only and projections where the size changes.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metareplay.nets.activations import activation_named
from metareplay.nets.base import check_image_shape, register_image_network, start_xavier

SMALLEST = 8
"""Smaller images have no pixels left after the last downsampling."""


def conv3x3(inputs: int, outputs: int, stride: int = 1, *, bias: bool = False) -> nn.Conv2d:
    """A convolution that keeps the size, or divides it by its stride."""
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=bias)


@final
class BasicBlock(nn.Module):
    """Two convolutions with batch normalisation, added to the input [He2016]."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, activation: str, *, bias: bool, projection: bool
    ) -> None:
        super().__init__()
        self.stride, self.more, self.activation = stride, outputs - inputs, activation_named(activation)
        self.conv1, self.norm1 = conv3x3(inputs, outputs, stride, bias=bias), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = conv3x3(outputs, outputs, bias=bias), nn.BatchNorm2d(outputs)
        changes = stride > 1 or self.more > 0
        project = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=bias), nn.BatchNorm2d(outputs))
        self.shortcut = project if projection and changes else None

    def forward(self, x: Tensor) -> Tensor:
        h = self.activation(self.norm1(self.conv1(x)))
        return self.activation(self.norm2(self.conv2(h)) + self._shortcut(x))

    def _shortcut(self, x: Tensor) -> Tensor:
        if self.shortcut is not None:
            return self.shortcut(x)
        if self.stride == 1 and self.more == 0:
            return x
        x = x[:, :, :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, 0, self.more))  # zeros for new channels [He2016, option A]


@final
class WideBlock(nn.Module):
    """Normalisation and activation come before each of two convolutions [Zagoruyko2016]."""

    def __init__(self, inputs: int, outputs: int, stride: int, activation: str) -> None:
        super().__init__()
        self.activation = activation_named(activation)
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), conv3x3(inputs, outputs, stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(outputs), conv3x3(outputs, outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        ready = self.activation(self.norm1(x))
        h = self.conv2(self.activation(self.norm2(self.conv1(ready))))
        return h + (x if self.shortcut is None else self.shortcut(ready))


class _Residual(nn.Module):
    """Stem, blocks, optionally a final normalisation, global average pooling, one linear layer."""

    def __init__(
        self,
        stem: Sequence[nn.Module],
        blocks: Sequence[nn.Module],
        last: Sequence[nn.Module],
        width: int,
        outputs: int,
    ) -> None:
        super().__init__()
        self.stem, self.blocks, self.last = nn.Sequential(*stem), nn.Sequential(*blocks), nn.Sequential(*last)
        self.head = nn.Linear(width, outputs)
        start_xavier(self)

    def forward(self, x: Tensor) -> Tensor:
        h = x.contiguous(memory_format=torch.channels_last)  # the faster layout; (B, C, H, W)
        h = self.last(self.blocks(self.stem(h)))
        return self.head(h.mean((2, 3)))  # (B, C', H', W') -> (B, outputs)


def _strides(widths: Sequence[int], depths: Sequence[int]) -> list[tuple[int, int, int]]:
    """Inputs, outputs and stride of each block: every group but the first halves the resolution."""
    blocks = []
    for group, ((before, width), depth) in enumerate(zip(pairwise(widths), depths, strict=True)):
        for index in range(depth):
            blocks.append((before if index == 0 else width, width, 2 if index == 0 and group > 0 else 1))
    return blocks


def _resnet(
    name: str,
    input_shape: Sequence[int],
    outputs: int,
    activation: str,
    widths: Sequence[int],
    depths: Sequence[int],
    *,
    bias: bool,
    projection: bool,
) -> nn.Module:
    channels, _, _ = check_image_shape(name, input_shape, SMALLEST)
    stem = [conv3x3(channels, widths[0], bias=bias), nn.BatchNorm2d(widths[0]), activation_named(activation)]
    blocks = [BasicBlock(*sizes, activation, bias=bias, projection=projection) for sizes in _strides(widths, depths)]
    return _Residual(stem, blocks, [], widths[-1], outputs)


def resnet_32(input_shape: Sequence[int], outputs: int, activation: str = "relu") -> nn.Module:
    """6n + 2 layers with n = 5; 16, 16, 32 and 64 channels."""
    return _resnet(
        "resnet-32", input_shape, outputs, activation, (16, 16, 32, 64), (5, 5, 5), bias=True, projection=False
    )


def resnet_18(input_shape: Sequence[int], outputs: int, activation: str = "relu") -> nn.Module:
    """The ImageNet network with a first layer of 3 x 3 and stride 1, and without max-pooling."""
    widths, depths = (64, 64, 128, 256, 512), (2, 2, 2, 2)
    return _resnet("resnet-18", input_shape, outputs, activation, widths, depths, bias=False, projection=True)


def wrn_28_10(input_shape: Sequence[int], outputs: int, activation: str = "relu") -> nn.Module:
    """28 layers, ten times as wide; without dropout."""
    channels, _, _ = check_image_shape("wrn-28-10", input_shape, SMALLEST)
    blocks = [WideBlock(*sizes, activation) for sizes in _strides((16, 160, 320, 640), (4, 4, 4))]
    return _Residual([conv3x3(channels, 16)], blocks, [nn.BatchNorm2d(640), activation_named(activation)], 640, outputs)


register_image_network(
    "resnet-32",
    resnet_32,
    SMALLEST,
    "residual network for small images: 32 layers, 16 to 64 channels; images of at least 8 x 8 pixels",
    normalised=True,
)
register_image_network(
    "resnet-18",
    resnet_18,
    SMALLEST,
    "residual network of 18 layers, 64 to 512 channels, with a first layer for small images; at least 8 x 8 pixels",
    normalised=True,
)
register_image_network(
    "wrn-28-10",
    wrn_28_10,
    SMALLEST,
    "wide residual network: 28 layers, 160 to 640 channels, 36.5 million weights; at least 8 x 8 pixels",
    normalised=True,
)
