"""CIFAR in its Hugging Face layout: colour images, fine labels, no checksums but counts."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from metareplay.benchmarks.images import CIFAR10_PREPARATION, CIFAR100_PREPARATION
from metareplay.benchmarks.registry import build_benchmark
from metareplay.data import sources
from metareplay.errors import DataError

pytest.importorskip("datasets")


def _write(path: Path, x: torch.Tensor, y: torch.Tensor) -> None:
    import pyarrow
    import pyarrow.parquet
    from PIL import Image

    encoded: list[dict[str, object]] = []
    for image in x:
        buffer = io.BytesIO()
        Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(buffer, format="PNG")
        encoded.append({"bytes": buffer.getvalue(), "path": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"img": encoded, "label": y.tolist(), "fine_label": y.tolist(), "coarse_label": (y // 5).tolist()}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


@pytest.fixture(params=["cifar10", "cifar100"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small data set in the layout of the published one, under its name."""
    monkeypatch.setenv("METAREPLAY_CACHE", str(tmp_path / "cache"))
    source, count = sources.KNOWN_SOURCES[name], 100 if name == "cifar100" else 10
    monkeypatch.setitem(sources.KNOWN_SOURCES, name, replace(source, sizes={"train": 2 * count, "test": count}))
    x, y = torch.randint(256, (2 * count, 3, 32, 32), dtype=torch.uint8), torch.arange(count).repeat(2)
    where = tmp_path / name / source.subfolder
    _write(where / "train-00000-of-00001.parquet", x, y)
    _write(where / "test-00000-of-00001.parquet", x[:count], y[:count])
    return tmp_path


def test_the_benchmark_is_read_from_the_folder(name: str, folder: Path) -> None:
    benchmark = build_benchmark(f"split-cifar-{name.removeprefix('cifar')}", data_dir=folder)
    count = {"cifar10": 2, "cifar100": 10}[name]
    assert benchmark.task_infos()[1].classes == tuple(range(count, 2 * count))
    assert benchmark[1].train.x.shape == (2 * count, 3, 32, 32)
    images = sources.load_images(name, folder)
    prepare = {"cifar10": CIFAR10_PREPARATION, "cifar100": CIFAR100_PREPARATION}[name]
    assert torch.equal(benchmark.test(1).x, prepare(images.test_x[count : 2 * count]))


def test_a_second_start_reads_the_cache(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sources.load_images(name, folder)
    monkeypatch.setattr(sources, "read_split", lambda *_: pytest.fail("decoded again"))
    assert torch.equal(sources.load_images(name, folder).train_x, first.train_x)


def test_a_wrong_number_of_images_is_refused(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sources.KNOWN_SOURCES, name, replace(sources.KNOWN_SOURCES[name], sizes={"train": 1, "test": 1})
    )
    with pytest.raises(DataError, match=rf"train images, but {name} has 1; download uoft-cs/{name} again"):
        sources.load_images(name, folder)
