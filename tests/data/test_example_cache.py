"""A user's files are read once; the second start takes what was kept, unless anything changed."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from metareplay.data import example_cache, reading
from metareplay.data.settings import DataSettings

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("METAREPLAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(example_cache, "SMALLEST", 0)
    for index, name in enumerate(("may/cat/1.png", "may/dog/2.png", "june/cat/3.png")):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((3, 4), index, dtype=np.uint8)).save(path)
    return tmp_path / "photos"


def read(path: Path, **settings: int) -> object:
    return reading.read_examples(DataSettings(path=str(path), **settings))  # type: ignore[arg-type]


def test_the_second_start_reads_no_image(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = reading.read_examples(DataSettings(path=str(photos)))
    monkeypatch.setattr(reading, "read_folder", lambda *_: pytest.fail("decoded again"))
    second = reading.read_examples(DataSettings(path=str(photos)))
    for name in ("x", "y", "task"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    assert second.test is None
    assert (first.labels, first.tasks, first.inputs, first.notes) == (
        second.labels,
        second.tasks,
        second.inputs,
        second.notes,
    )
    assert [first.where(row) for row in range(3)] == [second.where(row) for row in range(3)]


def change_pixels(photos: Path) -> None:
    Image.fromarray(np.full((3, 4), 99, dtype=np.uint8)).save(photos / "may" / "cat" / "1.png")
    os.utime(photos / "may" / "cat" / "1.png", ns=(1, 1))


def move_to_another_class(photos: Path) -> None:
    (photos / "june" / "cat").rename(photos / "june" / "dog")  # the files' names, sizes and times stay


def damage_the_cache(photos: Path) -> None:
    for file in (photos.parent / "cache").iterdir():
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(bytes(content))


@pytest.mark.parametrize("change", [change_pixels, move_to_another_class, damage_the_cache])
def test_whatever_changes_is_read_again(change: object, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(photos)
    assert callable(change)
    change(photos)
    calls = []
    real = reading.read_folder
    monkeypatch.setattr(reading, "read_folder", lambda *given: calls.append(given) or real(*given))
    read(photos)
    assert len(calls) == 1


def test_other_tasks_of_the_same_examples_are_not_read_again(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading.read_examples(DataSettings(path=str(photos)))
    monkeypatch.setattr(reading, "read_folder", lambda *_: pytest.fail("decoded again"))
    reading.read_examples(
        DataSettings(path=str(photos), tasks_by="classes:2", task_order=("dog", "cat"), test_share=0.5)
    )


def test_other_settings_are_read_again(photos: Path) -> None:
    assert reading.read_examples(DataSettings(path=str(photos))).x.shape[2:] == (3, 4)
    assert reading.read_examples(DataSettings(path=str(photos), image_size=(2, 2))).x.shape[2:] == (2, 2)


def test_a_cache_that_cannot_be_written_is_not_an_error(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("METAREPLAY_CACHE", str(tmp_path / "file" / "cache"))
    assert len(reading.read_examples(DataSettings(path=str(photos))).x) == 3


def test_small_files_leave_no_trace(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_cache, "SMALLEST", 10**6)
    read(photos)
    assert not (tmp_path / "cache").exists()
