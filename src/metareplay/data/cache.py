"""Decoded images, kept between runs: decoding 70,000 PNG files takes seconds, reading one file of pixels does not.

The cache only saves time. A file that is missing, corrupt or cannot be written is never an error.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save

from metareplay.data.base import LabelledImages
from metareplay.errors import DataError, MetaReplayError
from metareplay.files import write_atomically

CACHE_VARIABLE = "METAREPLAY_CACHE"


def cache_path(name: str, files: Iterable[Path]) -> Path | None:
    """The cache file for these files, by their names, sizes and modification times; None without a home folder."""
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    key = hashlib.sha256(json.dumps([name, sorted(facts)]).encode()).hexdigest()
    folder = cache_folder()
    return None if folder is None else folder / f"{name}-{key[:16]}.safetensors"


def cache_folder() -> Path | None:
    """Where cache files are; None without a home folder."""
    try:
        return Path(os.environ.get(CACHE_VARIABLE) or "~/.cache/metareplay").expanduser()
    except RuntimeError:  # no home folder
        return None


def load_cached(path: Path, checksums: Mapping[str, str] | None) -> LabelledImages | None:
    """The images of a cache file; None if it is missing or does not match the checksums (if any)."""
    try:
        parts = load_file(path)
        images = LabelledImages(parts["train_x"], parts["train_y"], parts["test_x"], parts["test_y"])
    except (OSError, SafetensorError, KeyError, DataError):
        return None
    return images if checksums is None or images.checksums() == checksums else None


def store(path: Path, images: LabelledImages) -> None:
    """Write the cache file in one step, so that no other process ever sees half of it."""
    content = save(
        {"train_x": images.train_x, "train_y": images.train_y, "test_x": images.test_x, "test_y": images.test_y}
    )
    with contextlib.suppress(MetaReplayError):  # an unwritable cache costs time only
        write_atomically(path, content)
