"""Folders of images: layouts, colours, sizes, and files that are broken."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from metareplay.data.base import Examples
from metareplay.data.reading import read_examples
from metareplay.data.settings import DataSettings
from metareplay.errors import ConfigError, DataError

Image = pytest.importorskip("PIL.Image")


def draw(path: Path, value: int = 0, size: tuple[int, int] = (3, 4), mode: str = "L") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = size if mode in ("L", "I;16") else (*size, {"RGB": 3, "RGBA": 4}[mode])
    Image.fromarray(np.full(shape, value, dtype=np.uint16 if mode == "I;16" else np.uint8)).save(path)


def read(path: Path, **settings: Any) -> Examples:
    return read_examples(DataSettings(path=str(path), **settings))


def test_folders_by_class(tmp_path: Path) -> None:
    for index, name in enumerate(("cat/1.png", "cat/2.png", "dog/1.PNG")):
        draw(tmp_path / name, index)
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / ".hidden").mkdir()
    examples = read(tmp_path)
    assert examples.x.shape == (3, 1, 3, 4)
    assert examples.x[:, 0, 0, 0].tolist() == [0, 1, 2]
    assert [examples.labels[index] for index in examples.y] == ["cat", "cat", "dog"]
    assert (examples.task, examples.test) == (None, None)
    assert examples.where(2) == str(tmp_path / "dog" / "1.PNG")


def test_folders_by_task_and_class_with_a_test_set(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for name in ("may/10/a.png", "may/9/a.png", "june/10/a.png"):
            draw(tmp_path / split / name)
    examples = read(tmp_path)
    assert examples.labels == ("9", "10")  # in the order of numbers
    assert examples.tasks == ("june", "may")
    assert examples.test is not None
    assert examples.test.tolist() == [False] * 3 + [True] * 3


def test_a_test_folder_elsewhere(tmp_path: Path) -> None:
    draw(tmp_path / "a" / "cat" / "1.png")
    draw(tmp_path / "b" / "cat" / "1.png")
    examples = read(tmp_path / "a", test_path=str(tmp_path / "b"))
    assert examples.test is not None
    assert examples.test.tolist() == [False, True]


def test_one_colour_image_makes_all_colour(tmp_path: Path) -> None:
    draw(tmp_path / "cat" / "1.png", 7)
    draw(tmp_path / "cat" / "2.png", 9, mode="RGB")
    draw(tmp_path / "dog" / "1.png", 8, mode="RGBA")
    examples = read(tmp_path)
    assert examples.x.shape == (3, 3, 3, 4)
    assert examples.x[:, :, 0, 0].tolist() == [[7] * 3, [9] * 3, [8] * 3]
    assert examples.inputs["mode"] == "RGB"


def test_mixed_sizes_are_refused_or_resized(tmp_path: Path) -> None:
    draw(tmp_path / "cat" / "1.png", 5)
    draw(tmp_path / "cat" / "2.png", 5, size=(6, 4))
    with pytest.raises(DataError, match=r"2\.png has 6 x 4 pixels .*1\.png 3 x 4; .*data\.image_size=\[3,4\]"):
        read(tmp_path)
    examples = read(tmp_path, image_size=8)
    assert examples.x.shape == (2, 1, 8, 8)
    assert examples.x.unique().tolist() == [5]
    assert examples.inputs["resize"] is True


def test_broken_and_deep_images_are_named(tmp_path: Path) -> None:
    draw(tmp_path / "cat" / "1.png")
    noise = np.random.default_rng(0).integers(0, 256, (3, 4), dtype=np.uint8)
    Image.fromarray(noise.repeat(20, 0).repeat(20, 1)).save(tmp_path / "cat" / "2.png", compress_level=0)
    good = (tmp_path / "cat" / "2.png").read_bytes()
    for content in (b"", b"text", good[:40], good[: len(good) // 2]):
        (tmp_path / "cat" / "2.png").write_bytes(content)
        with pytest.raises(DataError, match=r"2\.png cannot be read as an image"):
            read(tmp_path)
    draw(tmp_path / "cat" / "2.png", 300, mode="I;16")
    with pytest.raises(DataError, match=r"2\.png has more than 8 bits per pixel"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "holds no images"),
        (["1.png"], r"1\.png is not in a class folder"),
        (["a/b/c/1.png"], r"1\.png is too deep"),
        (["cat/1.png", "may/cat/1.png"], r"1\.png is not at the same depth as .*1\.png"),
        (["train/cat/1.png", "test/cat/1.png", "val/cat/1.png"], "has train and test but also val"),
        (["train/cat/1.png", "test/cat"], "test holds no images|test/cat is empty"),
        (["cat/1.png", "dog"], r"the folder .*dog is empty"),
    ],
)
def test_other_layouts_are_refused(files: list[str], message: str, tmp_path: Path) -> None:
    for name in files:
        if name.endswith(".png"):
            draw(tmp_path / name)
        else:
            (tmp_path / name).mkdir(parents=True)
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_the_folder_may_be_read_only(tmp_path: Path) -> None:
    draw(tmp_path / "photos" / "cat" / "1.png")
    places = [tmp_path / "photos", tmp_path / "photos" / "cat"]
    for place in places:
        place.chmod(0o555)
    try:
        assert torch.equal(read(tmp_path / "photos").x, torch.zeros(1, 1, 3, 4, dtype=torch.uint8))
    finally:
        for place in places:
            place.chmod(0o755)


@pytest.mark.parametrize(
    "settings", [{"label": "kind"}, {"ignore": ["id"]}, {"split_by": "part"}, {"tasks_by": "season"}]
)
def test_names_of_columns_are_refused_where_there_are_none(settings: dict[str, Any], tmp_path: Path) -> None:
    draw(tmp_path / "may" / "cat" / "1.png")
    with pytest.raises(
        ConfigError,
        match=r"--(label|ignore|split-by|tasks-by) names a column, but .* is not a table and has no columns",
    ):
        read(tmp_path, **settings)
