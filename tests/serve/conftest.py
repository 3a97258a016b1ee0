"""Tiny models, and servers on a free port of this machine."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from metareplay.estimators import ContinualClassifier, ContinualRegressor
from metareplay.serve.app import build_app
from metareplay.serve.server import bound_socket, make_server
from metareplay.serve.settings import ServeSettings

TINY = {"training.iterations": 30, "inference.samples": 3}
NASTY = "<script>alert('x')</script> & spring"
"""A name that must not become part of a page."""


@dataclass
class Reply:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class Client:
    """Asks one server; each thread has its own connection."""

    def __init__(self, port: int, service: Any) -> None:
        self.port, self.service, self._local = port, service, threading.local()
        self._opened: list[http.client.HTTPConnection] = []

    def close(self) -> None:
        for connection in self._opened:
            connection.close()

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Ask on this thread's connection, on a new one if the server has closed it meanwhile."""
        for last in (False, True):
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                self._opened.append(connection)
            try:
                connection.request(method, path, body, dict(headers or {}))
                response = connection.getresponse()
                return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
            except BaseException as error:
                connection.close()
                self._local.connection = None
                if last or not isinstance(error, ConnectionError):
                    raise
        raise AssertionError("unreachable")

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, headers={key.replace("_", "-"): value for key, value in headers.items()})

    def post(self, path: str, content: Any, kind: str = "application/json", **headers: str) -> Reply:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return self.ask("POST", path, body, {"Content-Type": kind, **named})


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[Client]:
    """A server in a thread of this process."""
    chosen = ServeSettings(port=0, watch=0.05, **settings)
    with bound_socket(chosen) as bound:
        app = build_app(folder, chosen)
        server = make_server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            deadline = time.monotonic() + 60
            while not server.started:
                assert thread.is_alive(), "the server did not start"
                assert time.monotonic() < deadline, "the server took too long to start"
                time.sleep(0.01)
            client = Client(bound.getsockname()[1], app.service)
            try:
                yield client
            finally:
                client.close()
        finally:
            server.should_exit = True
            thread.join(30)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def serving() -> Callable[..., Any]:
    return running


def flowers(season: int, names: tuple[str, str], count: int = 40) -> Any:
    """A table with two numbers, a word and a label."""
    rng = np.random.default_rng(season)
    frames = [
        pd.DataFrame(
            {
                "petal length": rng.normal(2 + 2 * kind + 6 * season, 0.3, count),
                "petal width": rng.normal(1 + kind + 6 * season, 0.2, count),
                "colour": rng.choice(["red", "blue", "white"], count),
                "species": name,
            }
        )
        for kind, name in enumerate(names)
    ]
    return pd.concat(frames, ignore_index=True)


@pytest.fixture(scope="session")
def flower_table() -> Callable[..., Any]:
    return flowers


@pytest.fixture(scope="session")
def table_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of a table, two tasks."""
    model = ContinualClassifier(seed=0, network="mlp-10", settings=TINY)
    model.learn_task(flowers(0, ("crocus", "tulip")), "species", name=NASTY)
    model.learn_task(flowers(1, ("rose", "<b>lily</b>")), "species", name="summer")
    folder = tmp_path_factory.mktemp("served") / "flowers"
    model.save(folder)
    return folder


@pytest.fixture(scope="session")
def image_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of small grey images that came as arrays from 0 to 1."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 0.2, (60, 1, 8, 8))
    y = np.arange(60) % 2
    x[y == 0, :, :4] += 0.7
    x[y == 1, :, 4:] += 0.7
    model = ContinualClassifier(seed=0, network="mlp-10", settings=TINY)
    model.learn_task(x, y, name="halves")
    model.learn_task(x.swapaxes(2, 3).copy(), y + 2, name="sides")
    folder = tmp_path_factory.mktemp("served") / "pictures"
    model.save(folder)
    return folder


@pytest.fixture(scope="session")
def regression_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A regressor, two tasks."""
    model = ContinualRegressor(seed=0, network="mlp-10", settings=TINY)
    for part in range(2):
        x = np.linspace(4 * part, 4 * part + 3, 40)[:, None]
        model.learn_task(x, np.sin(x[:, 0]), name=f"part-{part}")
    folder = tmp_path_factory.mktemp("served") / "curve"
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def client(table_model: Path) -> Iterator[Client]:
    """A server with the defaults."""
    with running(table_model) as opened:
        yield opened
