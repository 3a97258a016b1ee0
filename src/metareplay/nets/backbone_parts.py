"""What a backbone is when it has been found, and the backbones that have names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import nn

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


@dataclass(frozen=True, kw_only=True)
class BackbonePart(Part):
    """A backbone that has a name."""

    description: str
    load: Callable[[], Loaded]
    """Refuses, with a ConfigError, if a package is missing."""


BACKBONES: Registry[BackbonePart] = Registry("backbone")
register_backbone = BACKBONES.register
