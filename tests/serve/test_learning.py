"""A task that is learned in the background, while the model answers."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metareplay.estimators import ContinualClassifier
from metareplay.serve.learning import learn, read_examples

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
        time.sleep(0.05)
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


def test_rows_and_csv_are_the_same_examples(folder: Path, flower_table: Callable[..., Any]) -> None:
    import json

    model, table = ContinualClassifier.load(folder), flower_table(2, ("aster", "dahlia"), 5)
    by_csv = read_examples(table.to_csv(index=False).encode(), "text/csv", None, model)
    rows = json.dumps({"rows": table.to_dict("records")}).encode()
    by_rows = read_examples(rows, "application/json", "species", model)
    assert by_csv.y == by_rows.y == table["species"].tolist()
    assert (by_csv.x == by_rows.x).all()


def test_the_model_stays_as_it_was_when_learning_fails(
    serving: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from metareplay.serve.live import folder_signature

    before = folder_signature(folder)
    content = b"petal length,petal width,colour,species\n1,2,red,a\n"
    with serving(folder) as client:
        for query, words in (("", "a name"), ("?name=x&label=kind", "kind")):
            refused = client.post(f"/tasks{query}", content, "text/csv")
            assert refused.status == 422
            assert words in refused.json["error"]
        assert client.post("/tasks?name=x", content, "text/plain").status == 415
        assert client.get("/jobs/7").status == 404
    monkeypatch.setattr(ContinualClassifier, "save", _fail)
    with pytest.raises(OSError, match="full"):
        learn(folder, "x", content.replace(b"1,2,red,a\n", b"1,2,red,a\n3,4,red,b\n" * 10), "text/csv", None)
    assert folder_signature(folder) == before


def _fail(*_: Any) -> None:
    raise OSError("the disk is full")


def test_a_read_only_server_learns_nothing(serving: Callable[..., Any], folder: Path) -> None:
    with serving(folder, writable=False) as client:
        refused = client.post("/tasks?name=x", b"a,b\n1,2\n", "text/csv")
        assert client.get("/model").json["read_only"] is True
    assert refused.status == 403
    assert "--writable" in refused.json["error"]
