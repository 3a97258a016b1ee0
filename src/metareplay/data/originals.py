"""Known data sets from the files that their authors publish, downloaded by hand."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from metareplay.data.base import LabelledImages
from metareplay.data.readers.cifar import VERSIONS, Version, cifar_files, read_cifar, refuse_pickled
from metareplay.data.readers.idx import idx_files, read_pair
from metareplay.errors import DataError


class Original(NamedTuple):
    """Files that were found, and what reads them."""

    files: list[Path]
    read: Callable[[], LabelledImages]


def find_original(name: str, folder: Path) -> Original | None:
    """The files of "mnist", "cifar10" or "cifar100" in a folder or its subfolder of that name; None if absent."""
    version = next((version for version in VERSIONS if version.name == name), None)
    for place in (folder, folder / name):
        if not place.exists():
            continue
        if version is not None:
            if (cifar := cifar_files(place, version)) is not None:
                return Original(cifar[1], partial(_cifar, *cifar))
            refuse_pickled(place)
        elif place.is_dir() and (pairs := idx_files(place)):
            return Original(sorted(pairs.values()), partial(_idx, name, place, pairs))
    return None


def _cifar(version: Version, files: list[Path]) -> LabelledImages:
    train, test, _ = read_cifar(version, files)
    return _images(train, test)


def _idx(name: str, folder: Path, pairs: dict[tuple[str, str], Path]) -> LabelledImages:
    for split in ("train", "test"):
        for part in ("images", "labels"):
            if (split, part) not in pairs:
                file_name = f"{'t10k' if split == 'test' else split}-{part}-idx{3 if part == 'images' else 1}-ubyte"
                raise DataError(
                    f"{folder} has IDX files of {name} but not {file_name} (or {file_name}.gz); download it too"
                )
    train = read_pair(pairs["train", "images"], pairs["train", "labels"])
    test = read_pair(pairs["test", "images"], pairs["test", "labels"])
    return _images(train, test)


def _images(train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> LabelledImages:
    parts = [torch.from_numpy(part) for part in (*train, *test)]
    return LabelledImages(parts[0], parts[1], parts[2], parts[3])
