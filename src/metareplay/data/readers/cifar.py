"""CIFAR-10 and CIFAR-100 as their authors publish them: the binary version, packed (.tar.gz) or unpacked."""

import hashlib
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from metareplay.errors import DataError

PIXELS = 3 * 32 * 32


class Version(NamedTuple):
    """One data set's files: a record is its label bytes, of which the last counts, and the pixels of one image."""

    name: str
    archive: str
    md5: str
    """Of the archive, as its authors publish it."""
    train: tuple[str, ...]
    test: tuple[str, ...]
    label_bytes: int
    names: str
    classes: int
    unpacked: str
    """The folder in the archive."""
    records: int
    """Images in each training file."""
    test_records: int = 10_000


CIFAR10 = Version(
    "cifar10",
    "cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",
    tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    ("test_batch.bin",),
    1,
    "batches.meta.txt",
    10,
    "cifar-10-batches-bin",
    10_000,
)
CIFAR100 = Version(
    "cifar100",
    "cifar-100-binary.tar.gz",
    "03b5dce01913d631647c71ecec9e9cb8",
    ("train.bin",),
    ("test.bin",),
    2,
    "fine_label_names.txt",
    100,
    "cifar-100-binary",
    50_000,
)
VERSIONS = (CIFAR10, CIFAR100)
PICKLED = {
    "cifar-10-python.tar.gz",
    "cifar-100-python.tar.gz",
    "data_batch_1",
    "batches.meta",
    "cifar-10-batches-py",
    "cifar-100-python",
}


class Contents(NamedTuple):
    """Pixels (N, 3, 32, 32), labels (N,) and the class names, if there are any."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    names: tuple[str, ...]


def cifar_files(place: Path, version: Version | None = None) -> tuple[Version, list[Path]] | None:
    """Which version is in a folder, its usual subfolder or an archive, and its files; None if there is none."""
    for known in (version,) if version else VERSIONS:
        if place.is_file():
            if place.name == known.archive:
                return known, [place]
            continue
        for folder in (place, place / known.unpacked):
            if all((folder / name).is_file() for name in (*known.train, *known.test)):
                names = [folder / known.names] if (folder / known.names).is_file() else []
                return known, [*(folder / name for name in (*known.train, *known.test)), *names]
        if (place / known.archive).is_file():
            return known, [place / known.archive]
    return None


def refuse_pickled(place: Path) -> None:
    """Refuse the "python version": its files are pickled, and never opened."""
    pickled = (
        place.name
        if place.is_file()
        else next((name for name in sorted(PICKLED) if place.is_dir() and (place / name).exists()), "")
    )
    if pickled in PICKLED:
        raise DataError(
            f"{place} holds the Python version of CIFAR ({pickled}): pickled files can run any code when opened, "
            f"so they are refused; download the binary version ({CIFAR10.archive} or {CIFAR100.archive}) instead"
        )


def read_cifar(version: Version, files: list[Path]) -> Contents:
    """All images; the archive is verified by its published checksum, unpacked files by their sizes and labels."""
    content = (
        _unpacked(version, files[0]) if files[0].suffix == ".gz" else {file.name: file.read_bytes() for file in files}
    )
    where = str(files[0] if files[0].suffix == ".gz" else files[0].parent)
    names = tuple(content.get(version.names, b"").decode("ascii", "replace").split())
    return Contents(
        _records(version, version.train, content, where), _records(version, version.test, content, where), names
    )


def _unpacked(version: Version, archive: Path) -> dict[str, bytes]:
    wanted = {*version.train, *version.test, version.names}
    content = {}
    try:
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if digest != version.md5:
            raise DataError(
                f"{archive} has the checksum (MD5) {digest}, not the published {version.md5}: "
                "it is truncated or modified; download it again"
            )
        with tarfile.open(archive) as tar:
            for member in tar:
                name = Path(member.name).name
                if member.isfile() and name in wanted and (file_in := tar.extractfile(member)) is not None:
                    content[name] = file_in.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DataError(
            f"cannot read {archive} ({error}); the file is truncated or corrupt: download it again"
        ) from error
    return content


def _records(
    version: Version, files: tuple[str, ...], content: Mapping[str, bytes], where: str
) -> tuple[np.ndarray, np.ndarray]:
    size = version.label_bytes + PIXELS
    x, y = [], []
    for name in files:
        if name not in content:
            raise DataError(f"{where} has no {name}; download {version.archive} again")
        expected = version.records if files is version.train else version.test_records
        if len(content[name]) != expected * size:
            raise DataError(
                f"{where}: {name} has {len(content[name]):,} bytes instead of {expected * size:,}; download it again"
            )
        records = np.frombuffer(content[name], dtype=np.uint8).reshape(expected, size)
        labels = records[:, version.label_bytes - 1].astype(np.int64)
        if labels.max() >= version.classes:
            raise DataError(
                f"{where}: {name} has the label {labels.max()} in record {labels.argmax()}; "
                "it is corrupt: download it again"
            )
        x.append(records[:, version.label_bytes :].reshape(-1, 3, 32, 32))
        y.append(labels)
    return np.concatenate(x), np.concatenate(y)
