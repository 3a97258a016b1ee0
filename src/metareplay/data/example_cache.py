"""A user's examples as they were read, cached so that a second run need not decode images or parse text again.

As with known data sets, the cache only saves time: a missing, corrupt or unwritable file is never an error.
"""

import contextlib
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from metareplay.data.base import Examples, Place
from metareplay.data.cache import cache_path
from metareplay.errors import MetaReplayError
from metareplay.files import write_atomically
from metareplay.texts import read_json

SMALLEST = 1_000_000
"""Bytes below which reading the files again is just as fast."""
TYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.uint8: "U8", torch.bool: "BOOL"}
READING = 5
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


def _packed(examples: Examples) -> Iterator[bytes | memoryview]:
    tensors = {
        name: getattr(examples, name) for name in ("x", "y", "task", "test") if getattr(examples, name) is not None
    }
    facts: dict[str, Any] = {
        "labels": examples.labels,
        "tasks": examples.tasks,
        "places": [_place(place) for place in examples.places],
        "inputs": examples.inputs,
        "notes": examples.notes,
        "checksum": {name: _checksum(tensor) for name, tensor in tensors.items()},
    }
    text = torch.from_numpy(np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8).copy())
    return safetensors_parts({**{name: tensor.contiguous() for name, tensor in tensors.items()}, "facts": text})


def safetensors_parts(tensors: Mapping[str, torch.Tensor]) -> Iterator[bytes | memoryview]:
    """The content of a safetensors file, without a copy of the tensors."""
    header, end = {}, 0
    ordered = sorted(tensors.items(), key=lambda entry: -entry[1].element_size())  # each begins where its type may
    for name, tensor in ordered:
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, tensor in ordered:
        yield tensor.numpy().reshape(-1).view(np.uint8).data


def _place(place: Place) -> list[Any]:
    """A place as JSON; lines that follow each other by the first and the last."""
    text, names = place
    return [text, {"start": names.start, "stop": names.stop} if isinstance(names, range) else list(names)]


def _placed(text: str, names: Any) -> Place:
    return Place(text, names if isinstance(names, list) else range(names["start"], names["stop"]))


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
            tuple(
                Place(text, names if isinstance(names, list) else range(*names.values()))
                for text, names in facts["places"]
            ),
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
