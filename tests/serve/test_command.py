"""``metareplay serve`` as a command: it says where it listens, ends cleanly, and refuses what cannot work."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from metareplay.cli.main import app
from metareplay.errors import CheckpointError, ConfigError


def test_ctrl_c_ends_it_cleanly(table_model: Path) -> None:
    command = [sys.executable, "-m", "metareplay", "serve", str(table_model), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert found is not None, line
    with urlopen(f"{found[0]}/health", timeout=60) as response:
        assert response.status == 200
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "stopped\n", "")


def refused(*arguments: object) -> BaseException | None:
    return CliRunner().invoke(app, ["serve", *map(str, arguments)]).exception


def test_what_cannot_be_served_is_refused(table_model: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        in_use = refused(table_model, "--port", port)
    assert isinstance(in_use, ConfigError)
    assert str(port) in str(in_use)
    assert isinstance(refused(tmp_path, "--port", 0), CheckpointError)
    for options, words in (
        (("--token-file", tmp_path / "none"), "--token-file"),
        (("--max-rows", 0), "--max-rows"),
        (("--port", 70000), "--port"),
        (("--host", "0.0.0.0", "--writable"), "--token-file"),
        (("--log", tmp_path, "--port", 0), "--log"),
    ):
        error = refused(table_model, *options)
        assert isinstance(error, ConfigError), error
        assert words in str(error)


def test_a_missing_package_is_named(table_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    error = refused(table_model)
    assert isinstance(error, ConfigError)
    assert 'pip install "metareplay[serve]"' in str(error)
