"""IDX files, plain or gzipped: the format in which MNIST and its relatives are published."""

import gzip
import re
import zlib
from math import prod
from pathlib import Path

import numpy as np

from metareplay.errors import DataError
from metareplay.limits import GB, refuse_beyond

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_NAME = re.compile(r"(train|t10k|test)[-_.](images|labels)[-_.]idx\d[-_.]ubyte(\.gz)?")


def idx_files(folder: Path) -> dict[tuple[str, str], Path]:
    """The files of a folder by ("train" or "test", "images" or "labels"); plain ones before gzipped ones."""
    files: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.iterdir(), key=lambda path: path.suffix != ".gz"):
        if (match := _NAME.fullmatch(path.name)) and path.is_file():
            files["train" if match[1] == "train" else "test", match[2]] = path
    return files


def read_idx(path: Path) -> np.ndarray:
    """The array in one file."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES:
                words = "it does not start with the magic number"
                raise DataError(f"{path} is not an IDX file ({words}); download it again")
            kind, sizes = np.dtype(_TYPES[head[2]]), file.read(4 * head[3])
            shape = tuple(int(size) for size in np.frombuffer(sizes[: len(sizes) // 4 * 4], dtype=">u4"))
            expected = kind.itemsize * prod(shape)
            refuse_beyond(
                "memory_gb", min(max(expected, *shape, 0), 2**200) / GB, f"{path} claims the shape {shape}, in GB"
            )
            content = file.read(expected + 1)  # not what a small file may unpack to
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"cannot read {path} ({error}); the file is truncated or corrupt: copy or download it again"
        ) from error
    if len(shape) != head[3] or len(content) != expected:
        held = f"more than {expected:,}" if len(content) > expected else f"{len(content):,}"
        raise DataError(
            f"{path} has {held} bytes of numbers, but its header says {expected:,}: "
            "it is truncated or corrupt; download it again"
        )
    return np.frombuffer(content, dtype=kind).reshape(shape)


def read_pair(images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (N, 1, H, W), uint8, and labels (N,), int64."""
    x, y = read_idx(images), read_idx(labels)
    if x.dtype != np.uint8 or x.ndim != 3:
        raise DataError(f"{images} holds {x.dtype} of shape {x.shape}; images are bytes of shape (N, height, width)")
    if y.ndim != 1 or y.dtype.kind not in "iu" or len(y) != len(x):
        raise DataError(
            f"{labels} holds {y.dtype} of shape {y.shape}; "
            f"{len(x)} integers are needed, one for each image in {images.name}"
        )
    return x[:, None].copy(), y.astype(np.int64)  # (N, H, W) -> (N, 1, H, W)
