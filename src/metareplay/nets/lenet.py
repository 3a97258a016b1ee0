"""LeNet for images of 28 x 28 pixels and more [LeCun1998; Henning2021, SM sec. SplitMNIST]. An ordinary module."""

from collections.abc import Sequence
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metareplay.nets.activations import activation_named
from metareplay.nets.base import check_image_shape, register_image_network, start_xavier

SMALLEST = 16
"""Smaller images vanish in two unpadded 5 x 5 convolutions, each followed by 2 x 2 pooling."""


@final
class LeNet(nn.Module):
    """20 and 50 feature maps of 5 x 5, 500 units. Weights start Xavier-uniform, biases at zero."""

    def __init__(self, input_shape: Sequence[int], outputs: int, activation: str = "relu") -> None:
        super().__init__()
        channels, height, width = check_image_shape("lenet", input_shape, SMALLEST)
        self.activation = activation_named(activation)
        self.conv1, self.conv2 = nn.Conv2d(channels, 20, 5), nn.Conv2d(20, 50, 5)
        rows, columns = (((size - 4) // 2 - 4) // 2 for size in (height, width))
        self.hidden, self.head = nn.Linear(50 * rows * columns, 500), nn.Linear(500, outputs)
        start_xavier(self)

    def forward(self, x: Tensor) -> Tensor:
        h = x.contiguous(memory_format=torch.channels_last)  # the faster layout; (B, C, H, W)
        for convolution in (self.conv1, self.conv2):
            h = self.activation(F.max_pool2d(convolution(h), 2))
        return self.head(self.activation(self.hidden(h.flatten(1))))  # (B, 50, H', W') -> (B, outputs)


register_image_network(
    "lenet", LeNet, SMALLEST, "20 and 50 feature maps of 5 x 5, 500 units; images of at least 16 x 16 pixels"
)
