"""A small data set in MNIST's layout: parquet files with PNG images."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from metareplay.data import cache, sources
from metareplay.data.base import LabelledImages

Columns = dict[str, list[object]]


def _png(pixels: torch.Tensor) -> dict[str, object]:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(buffer, format="PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def _columns(x: torch.Tensor, y: torch.Tensor) -> Columns:
    return {"image": [_png(image[0]) for image in x], "label": y.tolist()}


def _write(path: Path, columns: Columns) -> None:
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


@pytest.fixture
def png() -> Callable[[torch.Tensor], dict[str, object]]:
    return _png


@pytest.fixture
def columns(images: LabelledImages) -> Columns:
    """What the file of the test split holds, to be changed and written back."""
    return _columns(images.test_x, images.test_y)


@pytest.fixture
def write_test_file(folder: Path) -> Callable[[Columns], None]:
    return lambda columns: _write(folder / "mnist" / "test-00000-of-00001.parquet", columns)


@pytest.fixture
def images() -> LabelledImages:
    generator = torch.Generator().manual_seed(0)
    train_x = torch.randint(0, 256, (12, 1, 6, 4), generator=generator, dtype=torch.uint8)
    test_x = torch.randint(0, 256, (5, 1, 6, 4), generator=generator, dtype=torch.uint8)
    return LabelledImages(train_x, torch.arange(12) % 3, test_x, torch.arange(5) % 3)


@pytest.fixture
def folder(tmp_path: Path, images: LabelledImages, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small data set that counts as the unchanged MNIST; its folder is that of the data set itself."""
    monkeypatch.delenv(sources.DATA_VARIABLE, raising=False)
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setitem(
        sources.KNOWN_SOURCES, "mnist", replace(sources.KNOWN_SOURCES["mnist"], checksums=images.checksums())
    )
    root = tmp_path / "data" / "mnist"
    _write(root / "mnist" / "train-00000-of-00002.parquet", _columns(images.train_x[:8], images.train_y[:8]))
    _write(root / "mnist" / "train-00001-of-00002.parquet", _columns(images.train_x[8:], images.train_y[8:]))
    _write(root / "mnist" / "test-00000-of-00001.parquet", _columns(images.test_x, images.test_y))
    return root


@pytest.fixture
def forbid_decoding(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From this call on, reading a parquet file is an AssertionError."""

    def refuse(*_: object) -> None:
        raise AssertionError("decoded again")

    return lambda: monkeypatch.setattr(sources, "read_split", refuse)
