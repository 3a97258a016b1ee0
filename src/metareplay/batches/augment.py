"""Augmentation of training inputs, for a whole batch at once."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

Augmentation = Literal["none", "crop-flip"]

CROP_PADDING = 4
"""Zero pixels added on each side before an image of the original size is cropped."""


def crop_and_flip(x: Tensor, *, generator: Generator) -> Tensor:
    """Shift each image of a batch by up to four pixels in each direction, and randomly flip it: (B, C, H, W)."""
    count, channels, height, width = x.shape
    padded = F.pad(x, (CROP_PADDING,) * 4)  # (B, C, H, W) -> (B, C, H + 8, W + 8)
    top, left = torch.randint(2 * CROP_PADDING + 1, (2, count, 1), generator=generator)  # (B, 1) each
    flipped = torch.rand(count, 1, generator=generator) < 0.5
    positions = torch.arange(width)
    rows = top + torch.arange(height)  # (B, H)
    columns = left + torch.where(flipped, positions.flip(0), positions)  # (B, W)
    image, channel = torch.arange(count).view(-1, 1, 1, 1), torch.arange(channels).view(1, -1, 1, 1)
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]  # (B, C, H, W)


AUGMENTATIONS: dict[str, Callable[..., Tensor]] = {"crop-flip": crop_and_flip}
"""By name in the settings; "none" has no entry."""
