"""Decoded images are kept between runs; whatever happens to the cache, the data is correct."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from metareplay.data import cache, sources
from metareplay.data.base import LabelledImages

pytest.importorskip("datasets")


def test_the_second_load_does_not_decode_again(
    folder: Path, images: LabelledImages, forbid_decoding: Callable[[], None], tmp_path: Path
) -> None:
    sources.load_mnist(folder)
    assert len(list((tmp_path / "cache").iterdir())) == 1  # and no temporary file is left
    forbid_decoding()
    assert sources.load_mnist(folder).checksums() == images.checksums()


def test_changed_files_are_read_again(folder: Path, forbid_decoding: Callable[[], None]) -> None:
    sources.load_mnist(folder)
    os.utime(folder / "mnist" / "test-00000-of-00001.parquet", (1, 1))
    forbid_decoding()
    with pytest.raises(AssertionError, match="decoded again"):
        sources.load_mnist(folder)


@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped", "other"])
def test_a_corrupt_cache_is_rebuilt(
    damage: str, folder: Path, images: LabelledImages, forbid_decoding: Callable[[], None], tmp_path: Path
) -> None:
    from safetensors.torch import save

    sources.load_mnist(folder)
    (file,) = (tmp_path / "cache").iterdir()
    good = file.read_bytes()
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    file.write_bytes(
        {"empty": b"", "truncated": good[:-7], "flipped": flipped, "other": save({"x": torch.zeros(1)})}[damage]
    )
    assert sources.load_mnist(folder).checksums() == images.checksums()
    assert file.read_bytes() == good
    forbid_decoding()
    assert sources.load_mnist(folder).checksums() == images.checksums()


def test_an_unwritable_cache_is_not_an_error(
    folder: Path, images: LabelledImages, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    assert sources.load_mnist(folder).checksums() == images.checksums()


def test_a_full_disk_is_not_an_error_and_leaves_nothing_behind(
    images: LabelledImages, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache.store(tmp_path / "cache" / "mnist-0.safetensors", images)
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_cache_folder_defaults_to_the_home_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(cache.CACHE_VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    sources.load_mnist(folder)
    assert len(list((tmp_path / "home" / ".cache" / "metareplay").glob("mnist-*.safetensors"))) == 1


def test_the_cache_key_does_not_depend_on_where_the_files_lie(
    folder: Path, images: LabelledImages, forbid_decoding: Callable[[], None]
) -> None:
    sources.load_mnist(folder)
    copy = folder.with_name("copied")
    shutil.copytree(folder, copy)  # keeps the times
    forbid_decoding()
    assert sources.load_mnist(copy).checksums() == images.checksums()
