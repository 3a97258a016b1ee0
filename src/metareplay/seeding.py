"""Random numbers: every use has its own generator, derived from the run's seed and a name.

Streams with different names are independent, so that drawing more numbers in one place
never changes what another place draws.
"""

import hashlib

import torch
from torch import Tensor


def derive_seed(seed: int, *path: str | int) -> int:
    """A 63-bit seed that depends on the run's seed and on a path of names."""
    key = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1


def generator_for(seed: int, *path: str | int) -> torch.Generator:
    """A new generator for one purpose, e.g. ``generator_for(seed, "batches", task)``."""
    return torch.Generator().manual_seed(derive_seed(seed, *path))


def normal(*shape: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """Standard normal samples like ``like``, drawn on the generator's device, so they are the same on every device."""
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=generator.device).to(like.device)
