"""What a backbone is when it has been found, and the backbones that have names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metareplay.errors import DataError
from metareplay.parts import Registry
from metareplay.settings import Part


class Loaded(NamedTuple):
    """A backbone as it was found: inputs (N, ...) -> features (N, F), and how images are prepared for it."""

    module: nn.Module
    size: int | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    power: float = 1.0
    """To which its features are raised, with their signs: a half where they are sparse and skewed."""


class Preparation(NamedTuple):
    """How inputs are handed to the backbone of this name."""

    name: str
    size: int | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    rounds: bool = False
    """Whether inputs are bytes of texts that need not be exact: those that are imagined are drawn from densities."""

    def __call__(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) in [0, 1] as the backbone was trained with them; other inputs as they are."""
        if x.ndim != 4:
            return x.round().clamp(0, 255) if self.rounds else x
        size, mean, std = self.size, self.mean, self.std
        if x.shape[1] == 1 and len(mean) == 3:
            x = x.expand(-1, 3, -1, -1)  # (N, 1, H, W) -> (N, 3, H, W)
        if size is not None and tuple(x.shape[2:]) != (size, size):
            x = F.interpolate(x, size=(size, size), mode="bilinear", align_corners=False)  # (N, C, size, size)
        if mean:
            if x.shape[1] != len(mean):
                raise DataError(f"the backbone {self.name} needs {len(mean)} channels, but images have {x.shape[1]}")
            centre, spread = (
                torch.tensor(values, device=x.device).view(-1, 1, 1) for values in (mean, std)
            )  # (C, 1, 1)
            x = (x - centre) / spread
        return x.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True, kw_only=True)
class BackbonePart(Part):
    """A backbone that has a name."""

    description: str
    load: Callable[[], Loaded]
    """Refuses, with a ConfigError, if a package is missing."""


BACKBONES: Registry[BackbonePart] = Registry("backbone")
register_backbone = BACKBONES.register
