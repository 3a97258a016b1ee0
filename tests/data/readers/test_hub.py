"""Data sets of the Hugging Face library: saved to disk, or loaded by name (the hub itself is never asked here)."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metareplay.data.readers import hub
from metareplay.data.reading import read_examples
from metareplay.data.settings import DataSettings
from metareplay.errors import DataError

datasets = pytest.importorskip("datasets")


@pytest.fixture
def flowers() -> Any:
    features = datasets.Features(
        {"size": datasets.Value("float32"), "label": datasets.ClassLabel(names=["rose", "tulip"])}
    )
    train = datasets.Dataset.from_dict({"size": [1.0, 2.0, 3.0], "label": [1, 0, 1]}, features=features)
    test = datasets.Dataset.from_dict({"size": [4.0], "label": [0]}, features=features)
    return datasets.DatasetDict({"train": train, "test": test})


def test_a_saved_data_set_has_its_class_names_and_test_set(
    flowers: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flowers.save_to_disk(str(tmp_path / "flowers"))
    capfd.readouterr()
    examples = read_examples(DataSettings(path=str(tmp_path / "flowers")))
    assert examples.x.tolist() == [[1], [2], [3], [4]]
    assert [examples.labels[index] for index in examples.y] == ["tulip", "rose", "tulip", "rose"]
    assert examples.test is not None
    assert examples.test.tolist() == [False, False, False, True]
    assert capfd.readouterr() == ("", "")


def test_a_single_saved_table(flowers: Any, tmp_path: Path) -> None:
    flowers["train"].save_to_disk(str(tmp_path / "flowers"))
    assert read_examples(DataSettings(path=str(tmp_path / "flowers"))).test is None


def test_a_damaged_saved_data_set_is_named(flowers: Any, tmp_path: Path) -> None:
    flowers["train"].save_to_disk(str(tmp_path / "flowers"))
    for file in (tmp_path / "flowers").glob("*.arrow"):
        file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(DataError, match=r"flowers.* is truncated or corrupt"):
        read_examples(DataSettings(path=str(tmp_path / "flowers")))


def test_parquet_files_written_by_the_library(flowers: Any, tmp_path: Path) -> None:
    for split, part in flowers.items():
        part.to_parquet(str(tmp_path / f"{split}-00000-of-00001.parquet"))
    examples = read_examples(DataSettings(path=str(tmp_path)))
    assert examples.labels == ("rose", "tulip")
    assert examples.test is not None


def test_a_name_of_the_hub_is_handed_on(flowers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *given: asked.append(given) or flowers)
    assert len(read_examples(DataSettings(path="hf:gardener/flowers:small")).x) == 4
    assert asked == [("gardener/flowers", "small")]


def test_images_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image").fromarray(np.full((3, 4), 7, dtype=np.uint8))
    made = datasets.Dataset.from_dict({"image": [image] * 2, "label": ["x", "y"]}).cast_column(
        "image", datasets.Image()
    )
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: made)
    assert read_examples(DataSettings(path="hf:a/b")).x.shape == (2, 1, 3, 4)


@pytest.mark.parametrize(
    ("offline", "message"),
    [
        (False, "cannot load a/b from the Hugging Face hub .no network."),
        (True, "a/b is not on this machine, and offline mode is on; .*--data"),
    ],
)
def test_what_cannot_be_loaded_says_what_to_do(offline: bool, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ConnectionError("no network\nmore")

    for name in ("METAREPLAY_OFFLINE", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1" if offline else "")
    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(DataError, match=message):
        hub.read_hub("hf:a/b")


def test_without_the_extra_the_message_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r'pip install "metareplay\[data\]"'):
        hub.read_hub("hf:a/b")
