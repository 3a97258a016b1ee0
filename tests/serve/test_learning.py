"""A task that is learned in the background, while the model answers."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metareplay.errors import DataError
from metareplay.estimators import ContinualClassifier
from metareplay.serve.learning import read_task, write_examples

from .conftest import NASTY, Client

ROW = [2.0, 1.0, "red"]


@pytest.fixture
def folder(table_model: Path, tmp_path: Path) -> Path:
    shutil.copytree(table_model, tmp_path / "model")
    return tmp_path / "model"


def wait_for(client: Client, job: int) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while (facts := client.get(f"/jobs/{job}").json)["state"] == "learning":
        assert time.monotonic() < deadline
        assert client.post("/predict", [ROW]).status == 200  # it goes on answering
        time.sleep(0.2)
    return dict(facts)


def test_a_task_is_learned_while_the_model_answers(
    serving: Callable[..., Any], folder: Path, flower_table: Callable[..., Any]
) -> None:
    table = flower_table(2, ("aster", "dahlia"))
    content = table.to_csv(index=False).encode()
    with serving(folder) as client:
        begun = client.post("/tasks?name=autumn", content, "text/csv")
        assert begun.status == 202
        assert begun.json["state"] == "learning"
        assert begun.json["examples"] == 80
        second = client.post("/tasks?name=winter", content, "text/csv")
        done = wait_for(client, begun.json["job"])
        names = [task["name"] for task in client.get("/tasks").json["tasks"]]
        answer = client.post("/predict", [[14.0, 13.0, "red"]]).json
        again = client.post("/tasks?name=autumn", content, "text/csv")
    assert second.status == 409
    assert done["state"] == "done", done
    assert names == [NASTY, "summer", "autumn"]
    assert answer["generation"] == 2
    assert answer["predictions"][0]["task"] == "autumn"
    assert again.status == 422
    assert "already" in again.json["error"]
    assert ContinualClassifier.load(folder).classes_.tolist()[-2:] == ["aster", "dahlia"]


def test_rows_and_csv_are_the_same_examples(folder: Path, flower_table: Callable[..., Any], tmp_path: Path) -> None:
    model, table = ContinualClassifier.load(folder), flower_table(2, ("aster", "dahlia"), 5)
    read = []
    for number, (content, kind, label) in enumerate(
        (
            (table.to_csv(index=False).encode(), "text/csv", None),
            (json.dumps({"rows": table.to_dict("records")}).encode(), "application/json", "species"),
        )
    ):
        (tmp_path / str(number)).mkdir()
        path = write_examples(content, kind, tmp_path / str(number))
        read.append(read_task(path, "autumn", label, model).tasks[0])
    assert list(read[0].labels) == list(read[1].labels) == table["species"].tolist()
    assert bool((read[0].x == read[1].x).all())


def test_arrays_beside_labels(image_model: Path, tmp_path: Path) -> None:
    model, rng = ContinualClassifier.load(image_model), np.random.default_rng(0)
    rows = rng.uniform(size=(4, 64)).round(3).tolist()
    content = json.dumps({"rows": rows, "labels": [7, 8, 7, 8]}).encode()
    task = read_task(write_examples(content, "application/json", tmp_path), "more", None, model).tasks[0]
    assert task.x.shape == (4, 1, 8, 8)
    assert task.classes == (7, 8)
    for labels in ([7], [7, 8, "x", None]):
        with pytest.raises(DataError, match="labels"):
            write_examples(json.dumps({"rows": rows, "labels": labels}).encode(), "application/json", tmp_path)


def test_the_model_stays_as_it_was_when_learning_fails(
    serving: Callable[..., Any], folder: Path, flower_table: Callable[..., Any]
) -> None:
    before = (folder / "model.safetensors").read_bytes()
    content = b"petal length,petal width,colour,species\n1,2,red,a\n"
    with serving(folder) as client:
        for query, words in (("", "a name"), ("?name=x&label=kind", "kind"), ("?name=x&max_change=-1", "max_change")):
            refused = client.post(f"/tasks{query}", content, "text/csv")
            assert refused.status == 422
            assert words in refused.json["error"]
            assert "/tmp" not in refused.json["error"]
        assert client.post("/tasks?name=x", content, "text/plain").status == 415
        assert client.get("/jobs/7").status == 404
        table = flower_table(2, ("aster", "dahlia")).to_csv(index=False).encode()
        begun = client.post("/tasks?name=autumn&max_change=0", table, "text/csv")
        failed = wait_for(client, begun.json["job"])
        assert failed["state"] == "failed"
        assert "the model is unchanged" in failed["error"]
        assert client.get("/health").json["generation"] == 1
    assert (folder / "model.safetensors").read_bytes() == before


def test_a_read_only_server_learns_nothing(serving: Callable[..., Any], folder: Path) -> None:
    with serving(folder, writable=False) as client:
        refused = client.post("/tasks?name=x", b"a,b\n1,2\n", "text/csv")
        assert client.get("/model").json["read_only"] is True
    assert refused.status == 403
    assert "--writable" in refused.json["error"]
