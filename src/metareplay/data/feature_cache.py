"""Features of inputs, kept between runs: they are computed once for the same inputs and the same backbone.

The cache only saves time. A file that is missing, corrupt or cannot be written is never an error.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from metareplay.data.cache import cache_folder
from metareplay.errors import MetaReplayError
from metareplay.files import write_atomically

BLOCK = 1000
"""Inputs per file: an interrupted computation continues with the first block that is missing."""


def cached_features(key: str, x: Tensor, compute: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
    """Features of inputs (N, ...), block by block (n, F); ``key`` stands for all else that decides them."""
    folder = cache_folder()
    for block in x.split(BLOCK):
        path = None if folder is None else folder / f"features-{key}" / f"{_fingerprint(block)}.safetensors"
        features = None if path is None else _load(path, len(block))
        if features is None:
            features = compute(block)
            if path is not None:
                with contextlib.suppress(MetaReplayError):  # an unwritable cache costs time only
                    write_atomically(path, save({"features": features.contiguous()}))
        yield features


def _fingerprint(x: Tensor) -> str:
    digest = hashlib.sha256(f"{x.dtype}{tuple(x.shape)}".encode())
    digest.update(x.contiguous().numpy().data)
    return digest.hexdigest()[:32]


def _load(path: Path, count: int) -> Tensor | None:
    try:
        features = load_file(path)["features"]
    except (OSError, SafetensorError, KeyError):
        return None
    usable = features.ndim == 2 and len(features) == count and features.dtype == torch.float32
    return features if usable else None
