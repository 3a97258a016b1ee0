"""Facts, limits, access, and a model that is replaced while it answers."""

import json
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from metareplay.errors import ConfigError
from metareplay.estimators import ContinualClassifier
from metareplay.estimators.loading import load_estimator
from metareplay.serve.live import LiveModel
from metareplay.serve.settings import ServeSettings, is_local, read_token

from .conftest import NASTY, Client

ROW = [2.0, 1.0, "red"]
TOKEN = "abcdefghijklmnop"


def test_facts(client: Client) -> None:
    health, model, tasks = (client.get(path).json for path in ("/health", "/model", "/tasks"))
    assert health["status"] == "ok"
    assert health["tasks"] == 2
    assert [column["name"] for column in model["columns"]] == ["petal length", "petal width", "colour"]
    assert model["read_only"] is False
    assert [task["name"] for task in tasks["tasks"]] == [NASTY, "summer"]
    assert tasks["tasks"][0]["classes"] == ["crocus", "tulip"]
    assert [task["task"] for task in client.get("/audit").json["tasks"]] == [NASTY, "summer"]


def test_metrics_count_by_path_and_status(client: Client) -> None:
    client.get("/nothing/here")
    client.post("/predict", [ROW])
    lines = client.get("/metrics").content.decode().splitlines()
    assert any(line.startswith('metareplay_requests_total{path="other",status="404"}') for line in lines)
    assert any(line.startswith('metareplay_requests_total{path="/predict",status="200"}') for line in lines)
    assert "metareplay_tasks 2.0" in lines


def test_openapi_and_its_page_need_nothing_from_elsewhere(client: Client) -> None:
    schema = client.get("/openapi.json").json
    assert {"/predict", "/tasks", "/audit", "/health", "/metrics", "/model"} <= set(schema["paths"])
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    text = page.content.decode()
    assert "http://" not in text
    assert "https://" not in text
    assert all(path in text for path in schema["paths"])


def test_wrong_paths_and_methods(client: Client) -> None:
    for reply, status in ((client.get("/nothing"), 404), (client.get("/predict"), 405)):
        assert reply.status == status
        assert "/docs" in reply.json["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80"}, 421),
        ({"Host": "["}, 421),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:8000", "Origin": "http://localhost:8000"}, 200),
    ],
)
def test_other_names_and_other_sites_pages_are_refused(client: Client, headers: dict[str, str], status: int) -> None:
    assert client.get("/health", **headers).status == status


def test_limits_are_named(serving: Callable[..., Any], table_model: Path) -> None:
    with serving(table_model, max_body=2000, max_rows=3, timeout=0.5) as client:
        rows = client.post("/predict", [ROW] * 4)
        lines = client.post("/predict", b"petal length,petal width,colour\n" + b"1,2,red\n" * 4, "text/csv")
        body = client.post("/predict", b" " * 2001)
        chunks = client.ask("POST", "/predict", iter([b" " * 1500] * 2), {"Content-Type": "application/json"})
        assert (rows.status, lines.status, body.status, chunks.status) == (413, 413, 413, 413)
        assert all("--max-rows" in reply.json["error"] for reply in (rows, lines))
        assert all("--max-body" in reply.json["error"] for reply in (body, chunks))
        slow = client.service.live.current.estimator
        slow.predict_full = lambda *arguments, **named: time.sleep(1.0)
        late = client.post("/predict", [ROW])
        del slow.predict_full
        assert late.status == 504
        assert "--timeout" in late.json["error"]
        time.sleep(0.6)
        assert client.post("/predict", [ROW]).status == 200


def test_a_full_queue_says_when_to_try_again(serving: Callable[..., Any], table_model: Path) -> None:
    with serving(table_model, queue=2) as client, ThreadPoolExecutor(8) as pool:
        estimator, began, release = client.service.live.current.estimator, threading.Event(), threading.Event()
        plain = estimator.predict_full
        estimator.predict_full = lambda *given, **named: (began.set(), release.wait(30), plain(*given, **named))[2]
        waiting = [pool.submit(client.post, "/predict", [ROW])]
        assert began.wait(30)  # the worker has taken the first
        waiting += [pool.submit(client.post, "/predict", [ROW]) for _ in range(2)]
        deadline = time.monotonic() + 30
        while client.service.batcher.depth < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        waiting += [pool.submit(client.post, "/predict", [ROW]) for _ in range(5)]
        for future in waiting[3:]:
            future.result()
        release.set()
        replies = [future.result() for future in waiting]
    assert [reply.status for reply in replies] == [200] * 3 + [503] * 5
    refused = replies[-1]
    assert refused.headers["retry-after"] == "1"
    assert "--queue" in refused.json["error"]


def test_a_failure_concerns_only_its_own_request(serving: Callable[..., Any], table_model: Path) -> None:
    with serving(table_model) as client, ThreadPoolExecutor(6) as pool:
        estimator = client.service.live.current.estimator
        plain = estimator.predict_full

        def fragile(x: Any, *given: Any, **named: Any) -> Any:
            if bool((x[:, 0] > 50).any()):
                raise RuntimeError("secret detail")
            return plain(x, *given, **named)

        estimator.predict_full = fragile
        rows = [[100.0 if number == 3 else 1.0, 1.0, "red"] for number in range(6)]
        replies = list(pool.map(lambda row: client.post("/predict", [row]), rows))
    assert [reply.status for reply in replies] == [200, 200, 200, 500, 200, 200]
    assert "secret" not in replies[3].content.decode()
    assert "its log" in replies[3].json["error"]


def test_a_token_guards_everything_but_the_pages(serving: Callable[..., Any], table_model: Path) -> None:
    with serving(table_model, token=TOKEN) as client:
        assert client.get("/health").status == 200
        assert client.get("/").status == 200
        for path in ("/model", "/tasks", "/audit", "/metrics"):
            assert client.get(path).status == 401
            assert client.get(path, Authorization=f"Bearer {TOKEN}").status == 200
        missing, wrong = client.post("/predict", [ROW]), client.post("/predict", [ROW], Authorization="Bearer no")
        assert (missing.status, wrong.status) == (401, 401)
        assert missing.headers["www-authenticate"] == "Bearer"
        assert client.post("/predict", [ROW], Authorization=f"bearer {TOKEN}").status == 200


def test_tokens_are_read_and_checked(tmp_path: Path) -> None:
    (tmp_path / "good").write_text(f"{TOKEN}\n")
    (tmp_path / "short").write_text("short")
    assert read_token(tmp_path / "good", {}) == TOKEN
    assert read_token(None, {"METAREPLAY_TOKEN": TOKEN}) == TOKEN
    assert read_token(None, {}) is None
    for path in (tmp_path / "short", tmp_path / "missing"):
        with pytest.raises(ConfigError, match=path.name):
            read_token(path, {})


def test_other_addresses_are_read_only_unless_there_is_a_token() -> None:
    assert not ServeSettings().read_only
    assert ServeSettings(host="0.0.0.0").read_only
    assert not ServeSettings(host="0.0.0.0", writable=True, token=TOKEN).read_only
    assert ServeSettings(writable=False).read_only
    with pytest.raises(ConfigError, match="--token-file"):
        ServeSettings(host="0.0.0.0", writable=True)
    with pytest.raises(ConfigError, match="--max-rows"):
        ServeSettings(max_rows=0)
    assert [is_local(name) for name in ("localhost", "127.3.2.1", "::1", "10.0.0.1", "example.org")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_new_model_in_the_folder_is_switched_to_without_a_failed_request(
    serving: Callable[..., Any], table_model: Path, tmp_path: Path, flower_table: Callable[..., Any]
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(table_model, folder)
    larger = ContinualClassifier.load(folder).learn_task(flower_table(2, ("aster", "dahlia")), "species", name="autumn")
    stop, replies = threading.Event(), []
    with serving(folder) as client, ThreadPoolExecutor(2) as pool:

        def ask() -> None:
            while not stop.is_set():
                replies.append(client.post("/predict", [ROW]))

        asking = [pool.submit(ask) for _ in range(2)]
        larger.save(folder)
        deadline = time.monotonic() + 20
        while client.get("/health").json["generation"] == 1 and time.monotonic() < deadline:
            time.sleep(0.02)
        client.post("/predict", [ROW])
        stop.set()
        for future in asking:
            future.result()
        last = client.post("/predict", [ROW]).json
    assert {reply.status for reply in replies} == {200}
    assert last["generation"] == 2
    assert list(last["predictions"][0]["task_probabilities"]) == [NASTY, "summer", "autumn"]
    for reply in replies:  # each answer is of one generation from beginning to end
        assert len(reply.json["predictions"][0]["task_probabilities"]) == reply.json["generation"] + 1


def test_a_damaged_model_leaves_the_current_one_in_place(table_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(table_model, folder)
    live = LiveModel(folder, ServeSettings())
    good = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(good[:100])
    assert not live.refresh()
    assert live.current.number == 1
    assert live.problem is not None
    assert "model.safetensors" in live.problem
    calls: list[int] = []
    live._load = lambda *given, **named: calls.append(1)  # type: ignore[assignment, func-returns-value]
    assert not live.refresh()
    assert calls == []  # it is not read again and again
    live._load = load_estimator
    (folder / "model.safetensors").write_bytes(good)
    assert live.refresh()
    assert (live.current.number, live.problem) == (2, None)


def test_the_log_holds_every_prediction(serving: Callable[..., Any], table_model: Path, tmp_path: Path) -> None:
    import pandas as pd

    log = tmp_path / "logs" / "predictions.jsonl"
    with serving(table_model, log=log, log_inputs=True) as client:
        answers = client.post("/predict", [ROW, [9.0, 8.0, "white"]]).json["predictions"]
        log.rename(tmp_path / "moved.jsonl")
        client.post("/predict", [ROW])
        log.unlink()
        log.mkdir()  # cannot be written any more
        assert client.post("/predict", [ROW]).status == 200
        assert "metareplay_log_failures_total 1.0" in client.get("/metrics").content.decode()
    frame = pd.read_json(tmp_path / "moved.jsonl", lines=True)
    assert frame["label"].tolist() == [row["label"] for row in answers]
    assert frame["probability"].tolist() == pytest.approx([max(row["probabilities"].values()) for row in answers])
    assert frame["input.petal length"].tolist() == [2.0, 9.0]
    assert frame["input.colour=white"].tolist() == [0, 1]
    assert json.loads((tmp_path / "moved.jsonl").read_text().splitlines()[0])["generation"] == 1


def test_memory_does_not_grow_with_requests(client: Client) -> None:
    def resident() -> float:
        text = client.get("/metrics").content.decode()
        return next(
            float(line.split()[1]) for line in text.splitlines() if line.startswith("process_resident_memory_bytes ")
        )

    def many(count: int) -> None:
        for _ in range(count):
            assert client.post("/predict", [ROW]).status == 200

    many(50)
    before = resident()
    many(200)
    assert resident() - before < 10 * 2**20


def test_a_bug_is_one_sentence_with_a_number(client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails() -> None:
        raise KeyError("/home/someone")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(client.service, "tasks", fails)
    reply = client.get("/tasks")
    assert reply.status == 500
    [path] = tmp_path.glob("metareplay-fault-*.txt")
    assert reply.json["fault"] in path.name
    assert reply.json["error"] == f"the server failed on this request (fault {reply.json['fault']}); its log says why"
    assert "in fails" in path.read_text()
