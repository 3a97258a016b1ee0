"""Data files that claim more than they hold, or than there is memory for, are refused before memory is taken."""

import gzip
import io
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from metareplay.data.readers.arrays import read_array
from metareplay.data.readers.idx import read_idx
from metareplay.data.readers.images import read_pixels
from metareplay.data.reading import read_examples
from metareplay.data.settings import DataSettings
from metareplay.errors import DataError

pyarrow = pytest.importorskip("pyarrow")


def npy(shape: tuple[int, ...], held: int = 64, kind: str = "<f4") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_2_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
    return file.getvalue() + bytes(held)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((10**15, 10**6), "METAREPLAY_MAX_MEMORY_GB"),
        ((2**62, 2**62, 4), "METAREPLAY_MAX_MEMORY_GB"),
        ((10**15, 0), "METAREPLAY_MAX_MEMORY_GB"),
        ((1000, 1000), "truncated or damaged"),
        ((-5, 3), "cannot be read as numbers"),
    ],
)
def test_arrays_hold_what_they_claim(shape: tuple[int, ...], words: str, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(npy(shape))
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy(shape))
    for name in ("x.npy", "x.npz"):
        with pytest.raises(DataError, match=words):
            read_array(tmp_path / name)


def test_an_archive_that_explodes_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((3_000_000, 1), dtype=np.float32))
    assert (tmp_path / "x.npz").stat().st_size < 100_000
    assert read_array(tmp_path / "x.npz").shape == (3_000_000, 1)
    monkeypatch.setenv("METAREPLAY_MAX_MEMORY_GB", "0.01")
    with pytest.raises(DataError, match=r"once unpacked.*METAREPLAY_MAX_MEMORY_GB"):
        read_array(tmp_path / "x.npz")


def test_gzipped_pixels_are_unpacked_only_as_far_as_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"

    def write(shape: tuple[int, int, int], held: int) -> None:
        head = b"\0\0\x08\x03" + struct.pack(">III", *shape)
        path.write_bytes(gzip.compress(head + bytes(held), compresslevel=1))

    write((3, 2, 2), 12)
    assert read_idx(path).shape == (3, 2, 2)
    write((3, 2, 2), 50_000_000)
    with pytest.raises(DataError, match="more than 12 bytes of numbers, but its header says 12"):
        read_idx(path)
    write((3, 2, 2), 11)
    with pytest.raises(DataError, match="has 11 bytes of numbers"):
        read_idx(path)
    write((2**32 - 1,) * 3, 11)
    with pytest.raises(DataError, match="METAREPLAY_MAX_MEMORY_GB"):
        read_idx(path)


def test_an_image_that_claims_too_many_pixels_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("1", (20_000, 20_000)).save(tmp_path / "huge.png")
    with pytest.raises(DataError, match=r"huge.png claims too many pixels.*METAREPLAY_MAX_IMAGE_MEGAPIXELS"):
        read_pixels([tmp_path / "huge.png"], lambda _: "huge.png")
    Image.new("L", (30, 30)).save(tmp_path / "small.png")
    monkeypatch.setenv("METAREPLAY_MAX_IMAGE_MEGAPIXELS", "0.0001")
    with pytest.raises(DataError, match="METAREPLAY_MAX_IMAGE_MEGAPIXELS"):
        read_pixels([tmp_path / "small.png"], lambda _: "small.png")


def test_parquet_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    from pyarrow import parquet

    columns = [pyarrow.array([1.0, 2.0]), pyarrow.array([3.0, 4.0]), pyarrow.array(["a", "b"])]
    parquet.write_table(pyarrow.Table.from_arrays(columns, names=["x", "x", "label"]), tmp_path / "d.parquet")
    with pytest.raises(DataError, match="two columns called 'x'"):
        read_examples(DataSettings(path=str(tmp_path / "d.parquet")))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set that the Hugging Face library saved to disk."""
    datasets = pytest.importorskip("datasets")
    folder = tmp_path_factory.mktemp("saved") / "data"
    rows = {"x": np.arange(3000.0).tolist(), "label": ["a", "b", "c"] * 1000}
    datasets.Dataset.from_dict(rows).save_to_disk(str(folder))
    return folder


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def overwritten(content: bytes) -> bytes:
    return content[:400] + b"\xff" * 64 + content[464:]


@pytest.mark.parametrize("damage", [cut, overwritten, lambda content: content[:16], lambda content: b""])
def test_damaged_arrow_files_are_refused_before_they_are_mapped(
    damage: Callable[[bytes], bytes], saved: Path, tmp_path: Path
) -> None:
    shutil.copytree(saved, tmp_path / "data")
    assert len(read_examples(DataSettings(path=str(tmp_path / "data"))).x) == 3000
    [file] = (tmp_path / "data").glob("*.arrow")
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match=r"truncated or corrupt|cannot read"):
        read_examples(DataSettings(path=str(tmp_path / "data")))
