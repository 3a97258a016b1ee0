"""A user's examples as they were read, cached so that a second run need not decode images or parse text again.

As with known data sets, the cache only saves time: a missing, corrupt or unwritable file is never an error.
"""

import contextlib
import hashlib
import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from metareplay.data.base import Examples, Place
from metareplay.data.cache import cache_path
from metareplay.errors import MetaReplayError
from metareplay.files import write_atomically
from metareplay.texts import read_json

SMALLEST = 1_000_000
"""Bytes below which reading the files again is just as fast."""
READING = 3
"""Increase this whenever the same files are read differently: older cache files are then ignored."""


def through_cache(what: str, files: Sequence[Path], read: Callable[[], Examples]) -> Examples:
    """The examples of some files; ``what`` says how they are read. The cache file's name depends on both."""
    if sum(file.stat().st_size for file in files) < SMALLEST:
        return read()
    key = hashlib.sha256(json.dumps([READING, what, [str(file) for file in files]]).encode()).hexdigest()
    path = cache_path(f"own-{key[:16]}", files)
    cached = None if path is None else _load(path)
    if cached is not None:
        return cached
    examples = read()
    if path is not None:
        with contextlib.suppress(MetaReplayError):  # an unwritable cache costs time only
            write_atomically(path, _packed(examples))
    return examples


def _packed(examples: Examples) -> bytes:
    tensors = {
        name: getattr(examples, name) for name in ("x", "y", "task", "test") if getattr(examples, name) is not None
    }
    facts: dict[str, Any] = {
        "labels": examples.labels,
        "tasks": examples.tasks,
        "places": [[place.text, list(place.names)] for place in examples.places],
        "inputs": examples.inputs,
        "notes": examples.notes,
        "checksum": {name: _checksum(tensor) for name, tensor in tensors.items()},
    }
    text = torch.from_numpy(np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8).copy())
    return save({**{name: tensor.contiguous() for name, tensor in tensors.items()}, "facts": text})


def _load(path: Path) -> Examples | None:
    """Memory-mapped; None if the file is missing or not what was stored."""
    try:
        tensors = load_file(path)
        facts = read_json(tensors.pop("facts").numpy().tobytes())
        if facts["checksum"] != {name: _checksum(tensor) for name, tensor in tensors.items()}:
            return None
        return Examples(
            tensors["x"],
            tensors["y"],
            tuple(facts["labels"]),
            tuple(Place(text, names) for text, names in facts["places"]),
            tensors.get("task"),
            tuple(facts["tasks"]),
            tensors.get("test"),
            facts["inputs"],
            tuple(facts["notes"]),
        )
    except (OSError, SafetensorError, KeyError, ValueError, TypeError):
        return None


def _checksum(tensor: torch.Tensor) -> int:
    return zlib.crc32(tensor.contiguous().numpy().data)
