"""Data from elsewhere: nothing outside their folder is read without being asked for."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metareplay.data.inside import VARIABLE
from metareplay.data.readers.folders import image_files
from metareplay.data.readers.parquet import read_split
from metareplay.data.reading import read_examples
from metareplay.data.settings import DataSettings
from metareplay.errors import DataError

Image = pytest.importorskip("PIL.Image")


def picture(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((4, 4), dtype=np.uint8)).save(path)
    return path


def read(path: Path) -> Any:
    return read_examples(DataSettings(path=str(path), label="label"))


def test_links_that_lead_out_of_a_folder_of_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, secret = tmp_path / "photos", picture(tmp_path / "private" / "secret.png")
    inner = picture(root / "cats" / "1.png")
    (root / "cats" / "2.png").symlink_to(inner)
    assert len(image_files(root)) == 2
    (root / "cats" / "3.png").symlink_to(secret)
    with pytest.raises(DataError, match=rf"3\.png is a link that points outside .*{VARIABLE}=1"):
        image_files(root)
    monkeypatch.setenv(VARIABLE, "1")
    assert len(image_files(root)) == 3


def test_the_folder_itself_may_be_a_link_and_a_snapshot_of_the_hub_is_whole(tmp_path: Path) -> None:
    blob = picture(tmp_path / "data--x" / "blobs" / "abc.png")
    snapshot = tmp_path / "data--x" / "snapshots" / "1"
    (snapshot / "cats").mkdir(parents=True)
    (snapshot / "cats" / "1.png").symlink_to(blob)
    assert len(image_files(snapshot)) == 1
    (tmp_path / "link").symlink_to(snapshot)
    assert len(image_files(tmp_path / "link")) == 1


def test_a_linked_folder_of_tables(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "t.csv").write_text("x,label\n1,a\n2,b\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "part").symlink_to(tmp_path / "private")
    with pytest.raises(DataError, match="points outside"):
        read(tmp_path / "data")


@pytest.mark.parametrize("target", ["u.csv", "gone.csv"])
def test_a_table_that_is_a_link_to_itself_or_to_nothing(target: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,label\n1,a\n2,b\n")
    (tmp_path / "u.csv").symlink_to(tmp_path / target)
    with pytest.raises(DataError, match=r"u\.csv is a broken link"):
        read(tmp_path)


@pytest.mark.parametrize("where", ["inside", "absolute", "above"])
def test_images_that_a_parquet_file_names(where: str, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "data"
    image = picture(folder / "a.png" if where == "inside" else tmp_path / "secret.png")
    name = {"inside": "a.png", "absolute": str(image), "above": "../secret.png"}[where]
    cells = [{"bytes": None, "path": name}] * 4
    folder.mkdir(exist_ok=True)
    parquet.write_table(pyarrow.table({"image": cells, "label": ["a", "b"] * 2}), folder / "t.parquet")
    if where == "inside":
        assert len(read(folder / "t.parquet").x) == 4
    else:
        with pytest.raises(DataError, match=r"is outside .* and is not read"):
            read(folder / "t.parquet")
    pytest.importorskip("datasets")
    with pytest.raises(DataError, match="no file outside it is read"):
        read_split([folder / "t.parquet"], "image", "label", "L")


@pytest.mark.parametrize("how", ["file", "split", "link"])
def test_a_saved_data_set_that_reaches_elsewhere(how: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"size": [1.0, 2.0], "label": ["a", "b"]})
    table.save_to_disk(str(tmp_path / "private"))
    folder = tmp_path / "data"
    datasets.DatasetDict({"train": table}).save_to_disk(str(folder))
    state = folder / "train" / "state.json"
    if how == "file":
        facts = json.loads(state.read_text())
        facts["_data_files"][0]["filename"] = "../../private/" + facts["_data_files"][0]["filename"]
        state.write_text(json.dumps(facts))
    elif how == "split":
        (folder / "dataset_dict.json").write_text('{"splits": ["../private"]}')
    else:
        arrow = next((folder / "train").glob("*.arrow"))
        arrow.unlink()
        arrow.symlink_to(next((tmp_path / "private").glob("*.arrow")))
    with pytest.raises(DataError, match=VARIABLE):
        read(folder)
