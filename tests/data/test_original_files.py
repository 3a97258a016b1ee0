"""IDX files and CIFAR's binary archives as downloaded by hand, for the known benchmarks and as a user's own data."""

import gzip
import hashlib
import io
import os
import struct
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from metareplay.data import cache, originals, sources
from metareplay.data.base import LabelledImages
from metareplay.data.readers import cifar
from metareplay.data.reading import read_examples
from metareplay.data.settings import DataSettings
from metareplay.errors import DataError

IDX = {
    "train_x": "train-images-idx3-ubyte",
    "train_y": "train-labels-idx1-ubyte",
    "test_x": "t10k-images-idx3-ubyte",
    "test_y": "t10k-labels-idx1-ubyte",
}


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture
def write_idx(tmp_path: Path, images: LabelledImages, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A folder of IDX files that counts as the unchanged MNIST."""
    monkeypatch.delenv(sources.DATA_VARIABLE, raising=False)
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setitem(
        sources.KNOWN_SOURCES, "mnist", replace(sources.KNOWN_SOURCES["mnist"], checksums=images.checksums())
    )

    def write(*, packed: bool, subfolder: str = ".") -> Path:
        folder = tmp_path / "idx" / subfolder
        folder.mkdir(parents=True)
        for part, name in IDX.items():
            array = getattr(images, part).numpy()
            content = idx(array[:, 0] if array.ndim == 4 else array)
            (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)
        return tmp_path / "idx"

    return write


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("subfolder", [".", "mnist"])
def test_a_known_data_set_from_idx_files(
    packed: bool, subfolder: str, write_idx: Callable[..., Path], images: LabelledImages
) -> None:
    folder = write_idx(packed=packed, subfolder=subfolder)
    assert sources.load_mnist(folder).checksums() == images.checksums()


def test_the_second_start_uses_the_cache(
    write_idx: Callable[..., Path], images: LabelledImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_idx(packed=True)
    sources.load_mnist(folder)
    monkeypatch.setattr(originals, "read_pair", lambda *_: pytest.fail("read again"))
    assert sources.load_mnist(folder).checksums() == images.checksums()


def test_idx_files_as_a_users_own_data(write_idx: Callable[..., Path], images: LabelledImages) -> None:
    found = read_examples(DataSettings(path=str(write_idx(packed=True))))
    assert torch.equal(found.x, torch.cat([images.train_x, images.test_x]))
    assert found.labels == (0, 1, 2)
    assert found.test is not None
    assert int(found.test.sum()) == len(images.test_x)


DAMAGE: list[tuple[str, Callable[[bytes], bytes], str]] = [
    (IDX["train_x"], lambda content: content[:-1], r"has 287 bytes of numbers, but its header says 288"),
    (IDX["train_x"], lambda content: b"\x89PNG" + content, "is not an IDX file"),
    (IDX["train_y"], lambda content: b"", "is not an IDX file"),
    (IDX["train_y"], lambda content: idx(np.zeros(3)), "12 integers are needed"),
    (IDX["train_x"], lambda content: idx(np.zeros((4, 4))), r"images are bytes of shape \(N, height, width\)"),
    (IDX["test_y"], lambda content: content[:-1] + b"\x00", "checksum of the test images"),
]


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGE, ids=[message[:20] for _, _, message in DAMAGE])
def test_a_damaged_idx_file_is_named(
    name: str, damage: Callable[[bytes], bytes], message: str, write_idx: Callable[..., Path]
) -> None:
    folder = write_idx(packed=False)
    (folder / name).write_bytes(damage((folder / name).read_bytes()))
    with pytest.raises(DataError, match=message):
        sources.load_mnist(folder)


def test_a_truncated_gzip_and_a_missing_file_are_named(write_idx: Callable[..., Path]) -> None:
    folder = write_idx(packed=True)
    path = folder / f"{IDX['train_x']}.gz"
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    with pytest.raises(DataError, match=r"cannot read .*train-images-idx3-ubyte\.gz"):
        sources.load_mnist(folder)
    path.unlink()
    with pytest.raises(DataError, match="but not train-images-idx3-ubyte"):
        sources.load_mnist(folder)
    with pytest.raises(DataError, match="train set needs both images and labels"):
        read_examples(DataSettings(path=str(folder)))


# CIFAR


def record(version: cifar.Version, label: int, value: int) -> bytes:
    return bytes([0] * (version.label_bytes - 1) + [label]) + bytes([value]) * cifar.PIXELS


@pytest.fixture(params=cifar.VERSIONS, ids=lambda version: version.name)
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> cifar.Version:
    """Of the published files' sizes only the number of images is smaller here."""
    small: cifar.Version = request.param._replace(records=4, test_records=2)
    monkeypatch.setattr(cifar, "VERSIONS", (small,))
    monkeypatch.setattr(originals, "VERSIONS", (small,))
    return small


@pytest.fixture
def contents(version: cifar.Version) -> dict[str, bytes]:
    train = b"".join(record(version, index % 3, index) for index in range(4))
    files = dict.fromkeys(version.train, train) | {version.test[0]: record(version, 2, 9) + record(version, 1, 8)}
    return files | {version.names: "\n".join(f"name{index}" for index in range(version.classes)).encode()}


def unpack(folder: Path, contents: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def pack(path: Path, contents: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"cifar-files/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("packed", [True, False])
def test_cifar_packed_and_unpacked(
    packed: bool, version: cifar.Version, contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if packed:
        path = pack(tmp_path / version.archive, contents)
        known = version._replace(md5=hashlib.md5(path.read_bytes()).hexdigest())
        for module in (cifar, originals):
            monkeypatch.setattr(module, "VERSIONS", (known,))
    else:
        unpack(tmp_path / version.unpacked, contents)
    original = originals.find_original(version.name, tmp_path)
    assert original is not None
    found = original.read()
    assert found.train_x.shape == (4 * len(version.train), 3, 32, 32)
    assert found.train_y[:4].tolist() == [0, 1, 2, 0]
    assert found.train_x[:4, 0, 0, 0].tolist() == [0, 1, 2, 3]
    assert found.test_y.tolist() == [2, 1]
    examples = read_examples(DataSettings(path=str(tmp_path)))
    assert examples.labels == ("name0", "name1", "name2")
    assert examples.test is not None
    assert int(examples.test.sum()) == 2


def test_a_changed_archive_fails_its_checksum(
    version: cifar.Version, contents: dict[str, bytes], tmp_path: Path
) -> None:
    path = pack(tmp_path / version.archive, contents)
    original = originals.find_original(version.name, path.parent)
    assert original is not None
    with pytest.raises(
        DataError, match=rf"{version.archive} has the checksum \(MD5\) .*not the published {version.md5}"
    ):
        original.read()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-1], "bytes instead of"),
        (lambda content: b"\xff\xff" + content[2:], "has the label 255 in record 0"),
    ],
)
def test_a_damaged_batch_is_named(
    damage: Callable[[bytes], bytes], message: str, version: cifar.Version, contents: dict[str, bytes], tmp_path: Path
) -> None:
    name = version.train[0]
    folder = unpack(tmp_path / "files", contents | {name: damage(contents[name])})
    with pytest.raises(DataError, match=rf"{name} has .*|{message}") as caught:
        read_examples(DataSettings(path=str(folder)))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["cifar-10-python.tar.gz", "data_batch_1", "cifar-100-python"])
def test_the_pickled_version_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"never opened")
    os.chmod(tmp_path / name, 0o000)
    with pytest.raises(DataError, match=r"Python version of CIFAR .*can run any code.*binary version"):
        read_examples(DataSettings(path=str(tmp_path)))
    with pytest.raises(DataError, match="binary version"):
        originals.find_original("cifar10", tmp_path)


# Offline


@pytest.mark.parametrize("variable", ["METAREPLAY_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_mode_asks_for_files_at_hand_only(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    asked: list[object] = []

    def download(*_: object, local_files_only: bool, **__: object) -> str:
        asked.append(local_files_only)
        raise OSError("not found")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.delenv(sources.DATA_VARIABLE, raising=False)
    monkeypatch.setenv(variable, "1")
    with pytest.raises(
        DataError,
        match=r"mnist is not on this machine, and offline mode .* is on; put its files .*ylecun/mnist.*--data-dir",
    ):
        sources.load_mnist()
    assert asked == [True]
