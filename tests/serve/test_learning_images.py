"""Tasks of images that clients send: a form whose fields are labels, or a zip of folders."""

import io
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from metareplay import permissions
from metareplay.data.settings import DataSettings
from metareplay.errors import DataError
from metareplay.estimators.loading import load_estimator
from metareplay.living.changes import new_model
from metareplay.living.learning import add_tasks
from metareplay.serve.labelled_images import LabelledFile, write_images, zipped_images
from metareplay.serve.refusals import RequestError
from metareplay.serve.settings import ServeSettings

TINY = {"training.iterations": 20, "inference.samples": 3}
NETWORK = "features:served_patches:patches+mlp-6"


def png(place: int, seed: int, channel: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 60, (8, 8, 3), dtype=np.uint8)
    pixels[4 * place : 4 * place + 4, :, channel] += 150
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def packed(**files: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, file in files.items():
            archive.writestr(name, file)
    return content.getvalue()


def form(files: list[tuple[str, str, bytes]]) -> tuple[bytes, str]:
    """A body of labelled files, and its type."""
    parts = [
        f'--cut\r\nContent-Disposition: form-data; name="{label}"; filename="{name}"\r\n\r\n'.encode() + content
        for label, name, content in files
    ]
    return b"\r\n".join(parts) + b"\r\n--cut--\r\n", "multipart/form-data; boundary=cut"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that learned from photos, through a backbone of the user's own."""
    root = tmp_path_factory.mktemp("photos")
    for place, label in enumerate(("cat", "dog")):
        (root / "may" / label).mkdir(parents=True)
        for number in range(8):
            (root / "may" / label / f"{number}.png").write_bytes(png(place, number))
    code = "from torch import nn\ndef patches():\n    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())\n"
    (root / "served_patches.py").write_text(code)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(root))
        patched.setattr(permissions, "_permitted", {"served_patches:patches"})
        patched.setenv("METAREPLAY_CACHE", str(root / "cache"))
        new_model(root / "model", network=NETWORK, settings=TINY)
        add_tasks(root / "model", DataSettings(path=str(root / "may")), name="may")
    return root / "model"


@pytest.fixture
def permitted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(permissions, "_permitted", {"served_patches:patches"})
    monkeypatch.setenv("METAREPLAY_CACHE", str(folder.parent / "cache"))
    monkeypatch.setenv("PYTHONPATH", ":".join((str(folder.parent), *filter(None, sys.path))))  # of the learning process
    monkeypatch.syspath_prepend(str(folder.parent))
    return folder


def test_a_task_is_learned_from_labelled_photos(serving: Callable[..., Any], permitted: Path) -> None:
    files = [
        (label, "../../same.png", png(place, n, 2)) for place, label in enumerate(("owl", "hen")) for n in range(8)
    ]
    with serving(permitted) as client:
        begun = client.post("/tasks?name=june", *form(files))
        assert begun.status == 202, begun.json
        assert begun.json["examples"] == 16
        deadline = time.monotonic() + 240
        while (facts := client.get(f"/jobs/{begun.json['job']}").json)["state"] == "learning":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert facts["state"] == "done", facts
        tasks = client.get("/tasks").json["tasks"]
        answer = client.post("/predict?task=june", png(0, 99, 2), "image/png")
        no_label = client.post("/tasks?name=july", *form([("a/b", "1.png", png(0, 1))]))
        no_image = client.post("/tasks?name=july", packed(**{"owl/1.png": b"GIF89a"}), "application/zip")
    assert [(task["name"], sorted(task["classes"])) for task in tasks] == [
        ("may", ["cat", "dog"]),
        ("june", ["hen", "owl"]),
    ]
    assert answer.json["predictions"][0]["label"] in ("owl", "hen")
    assert no_label.status == 422
    assert "must not contain" in no_label.json["error"]
    assert no_image.status == 415
    assert "neither a PNG nor a JPEG" in no_image.json["error"]


def test_a_zip_is_read_by_its_folders_and_within_limits() -> None:
    content = packed(**{
        "photos/cat/1.png": b"1", "photos/test/cat/2.png": b"2", "__MACOSX/cat/._1.png": b"3", "photos/notes.txt": b"4",
        "../../dog/5.png": b"5", "C:\\hen\\6.jpg": b"6",
    })  # fmt: skip
    found = zipped_images(content, ServeSettings())
    assert [(file.label, file.content) for file in found] == [("cat", b"1"), ("dog", b"5"), ("hen", b"6")]
    with pytest.raises(DataError, match="not in a folder"):
        zipped_images(packed(**{"1.png": b"1"}), ServeSettings())
    with pytest.raises(DataError, match="cannot be read"):
        zipped_images(b"PK no zip", ServeSettings())
    with pytest.raises(RequestError, match="times --max-body"):
        zipped_images(packed(**{"cat/1.png": b"0" * 50}), ServeSettings(max_body=10))
    with pytest.raises(RequestError, match="at most 1"):
        zipped_images(packed(**{"cat/1.png": b"1", "cat/2.png": b"2"}), ServeSettings(max_rows=1))


def test_files_are_written_below_one_folder_only(permitted: Path, tmp_path: Path) -> None:
    model, settings = load_estimator(permitted), ServeSettings()
    root = write_images([LabelledFile("test", "../../x", png(0, 0))], model, settings, tmp_path)
    assert [path.relative_to(root).as_posix() for path in root.rglob("*.*")] == ["train/test/000000.png"]
    for label in ("", "..", ".hidden", "a/b", "a\\b", "a\0b", "x" * 101):
        with pytest.raises(DataError, match="label"):
            write_images([LabelledFile(label, "1.png", png(0, 0))], model, settings, tmp_path)
    with pytest.raises(DataError, match="no images"):
        write_images([], model, settings, tmp_path)


def test_a_model_of_rows_takes_no_images(table_model: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="did not learn from image files"):
        write_images([LabelledFile("a", "1.png", png(0, 0))], load_estimator(table_model), ServeSettings(), tmp_path)
    assert not list(tmp_path.iterdir())
