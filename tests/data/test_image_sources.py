"""Reading parquet folders: small ones in MNIST's layout, and the real one where it is at hand."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from metareplay.data import sources
from metareplay.data.base import LabelledImages
from metareplay.errors import DataError

datasets = pytest.importorskip("datasets")

Columns = dict[str, list[object]]
Write = Callable[[Columns], None]
Encode = Callable[[torch.Tensor], dict[str, object]]


@pytest.mark.parametrize("place", [".", "..", "mnist"])
def test_the_folder_may_be_the_data_sets_own_or_contain_it(
    place: str, folder: Path, images: LabelledImages, capfd: pytest.CaptureFixture[str]
) -> None:
    found = sources.load_mnist(folder / place)
    for part in ("train_x", "train_y", "test_x", "test_y"):
        assert torch.equal(getattr(found, part), getattr(images, part)), part
    assert found.max_value == 255
    assert capfd.readouterr() == ("", "")  # no progress bars


def test_a_folder_name_with_wildcards_is_taken_literally(folder: Path, images: LabelledImages) -> None:
    odd = folder.with_name("mnist [copy] *")
    folder.rename(odd)
    assert sources.load_mnist(odd).checksums() == images.checksums()


def test_reading_a_folder_never_asks_the_network(
    folder: Path, images: LabelledImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def refuse(host: object, *_: object, **__: object) -> None:
        asked.append(host)
        raise OSError("no network")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    assert sources.load_mnist(folder).checksums() == images.checksums()
    assert asked == []


def test_the_environment_names_the_folder(
    folder: Path, images: LabelledImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sources.DATA_VARIABLE, str(folder))
    assert sources.load_mnist().checksums() == images.checksums()


def test_an_explicit_folder_comes_before_the_environment(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sources.DATA_VARIABLE, str(folder))
    with pytest.raises(DataError, match=r"elsewhere \(from --data-dir\) is not a folder"):
        sources.load_mnist(tmp_path / "elsewhere")


def test_the_hub_is_asked_last(folder: Path, images: LabelledImages, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def download(hub_id: str, **_: object) -> str:
        asked.append(hub_id)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert sources.load_mnist().checksums() == images.checksums()
    assert asked == ["ylecun/mnist"]


def test_without_a_network_the_message_tells_how_to_name_a_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: object, **__: object) -> str:
        raise ConnectionError("name or service not known\nand more lines")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(DataError, match=r"\(name or service not known\).*--data-dir.*METAREPLAY_DATA"):
        sources.load_mnist()


@pytest.mark.parametrize("missing", ["datasets", "huggingface_hub"])
def test_without_the_extra_the_message_names_it(missing: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(DataError, match=r'pip install "metareplay\[data\]"'):
        sources.load_mnist(folder if missing == "datasets" else None)


def test_a_folder_without_the_files_is_named_with_what_to_do(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    with pytest.raises(DataError, match=r"no mnist files .*others.*ylecun/mnist.*--data-dir"):
        sources.load_mnist(tmp_path / "others")


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_missing_file_is_named(split: str, folder: Path) -> None:
    for file in (folder / "mnist").glob(f"{split}-*"):
        file.unlink()
    with pytest.raises(DataError, match=rf"mnist has no file {split}-\*\.parquet"):
        sources.load_mnist(folder)


@pytest.mark.parametrize("keep", [0, 100, -10], ids=["empty", "half", "without-its-end"])
def test_a_truncated_file_is_named(keep: int, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = folder / "mnist" / "test-00000-of-00001.parquet"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"cannot read .*test-00000-of-00001\.parquet .*truncated or corrupt"):
        sources.load_mnist(folder)
    assert capfd.readouterr() == ("", "")  # the message comes once


def test_a_broken_image_is_a_clear_error(folder: Path, columns: Columns, write_test_file: Write) -> None:
    columns["image"][3] = {"bytes": b"\x89PNG\r\n\x1a\nnothing", "path": None}
    write_test_file(columns)
    with pytest.raises(DataError, match=r"cannot read .*test-.*corrupt"):
        sources.load_mnist(folder)


def test_images_of_different_sizes_are_refused(
    folder: Path, columns: Columns, write_test_file: Write, png: Encode
) -> None:
    columns["image"][2] = png(torch.zeros(5, 4, dtype=torch.uint8))
    write_test_file(columns)
    with pytest.raises(DataError, match=r"image 2 has shape \(5, 4\)"):
        sources.load_mnist(folder)


@pytest.mark.parametrize(
    "labels", [["zero", "one", "two", "three", "four"], [0, 1, None, 0, 1]], ids=["words", "missing"]
)
def test_labels_that_are_not_integers_are_refused(
    labels: list[object], folder: Path, columns: Columns, write_test_file: Write
) -> None:
    write_test_file(columns | {"label": labels})
    with pytest.raises(DataError, match=r"cannot read .*test-"):
        sources.load_mnist(folder)


def test_a_file_without_rows_is_refused(folder: Path) -> None:
    import pyarrow.parquet

    file = folder / "mnist" / "test-00000-of-00001.parquet"
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(file).slice(0, 0), file)
    with pytest.raises(DataError, match=r"test-00000-of-00001\.parquet"):
        sources.load_mnist(folder)


@pytest.mark.parametrize("column", ["image", "label"])
def test_a_missing_column_is_named(column: str, folder: Path, columns: Columns, write_test_file: Write) -> None:
    columns["other"] = columns.pop(column)
    write_test_file(columns)
    with pytest.raises(DataError, match=rf"test-00000-of-00001\.parquet has no column {column}, only .*other"):
        sources.load_mnist(folder)


@pytest.mark.parametrize("change", ["pixel", "label"])
def test_changed_content_fails_the_checksum(
    change: str,
    folder: Path,
    images: LabelledImages,
    columns: Columns,
    write_test_file: Write,
    png: Encode,
    tmp_path: Path,
) -> None:
    if change == "pixel":
        image = images.test_x[0, 0].clone()
        image[0, 0] ^= 1
        columns["image"][0] = png(image)
    else:
        columns["label"][0] = 2
    write_test_file(columns)
    with pytest.raises(DataError, match=r"checksum of the test images in .*test-00000-of-00001\.parquet"):
        sources.load_mnist(folder)
    assert not (tmp_path / "cache").exists()  # nothing wrong is ever kept


def test_colour_images_come_with_the_channels_first(
    folder: Path, images: LabelledImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    grey = sources.KNOWN_SOURCES["mnist"]
    colour = LabelledImages(
        images.train_x.expand(-1, 3, -1, -1), images.train_y, images.test_x.expand(-1, 3, -1, -1), images.test_y
    )
    monkeypatch.setitem(sources.KNOWN_SOURCES, "rgb", replace(grey, mode="RGB", checksums=colour.checksums()))
    assert sources.load_images("rgb", folder).checksums() == colour.checksums()


def test_the_data_folder_may_be_read_only(folder: Path, images: LabelledImages) -> None:
    places = [folder, folder / "mnist", *(folder / "mnist").iterdir()]
    before = {place: (place.stat().st_mtime_ns, place.stat().st_size) for place in places}
    for place in places:
        place.chmod(0o555 if place.is_dir() else 0o444)
    try:
        assert sources.load_mnist(folder).checksums() == images.checksums()
        assert {place: (place.stat().st_mtime_ns, place.stat().st_size) for place in places} == before
    finally:
        for place in places:
            place.chmod(0o755)


def test_the_library_keeps_no_copy_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "huggingface"
    home.mkdir()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", home)
    sources.load_mnist(folder)
    assert list(home.iterdir()) == []


@pytest.mark.slow
def test_the_real_mnist_passes_its_checksum(mnist_dir: Path) -> None:
    mnist = sources.load_mnist(mnist_dir)
    assert mnist.train_x.shape == (60000, 1, 28, 28)
    assert mnist.test_x.shape == (10000, 1, 28, 28)
    assert mnist.train_y[:5].tolist() == [5, 0, 4, 1, 9]
    assert mnist.checksums() == sources.KNOWN_SOURCES["mnist"].checksums
