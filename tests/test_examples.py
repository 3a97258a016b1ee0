"""The examples run, in small. Those that start a process for each command are slow; the tutorials, which take the same
steps in one process (test_tutorials.py), are not."""

import os
import runpy
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from metareplay.living.changes import new_model

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
ENVIRONMENT = {
    **os.environ,
    "METAREPLAY": f"{sys.executable} -m metareplay",
    "PYTHONPATH": str(ROOT / "src"),
    "OMP_NUM_THREADS": "1",
}
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def test_every_example_is_listed_and_tested() -> None:
    files = {path.name for path in EXAMPLES.iterdir()} - {"README.md", "__pycache__"}
    listed = (EXAMPLES / "README.md").read_text()
    assert files == {"monthly_table.sh", "photos_server.sh", "stream.py"}
    assert all(f"({name})" in listed for name in files)


def month(path: Path, centre: float) -> None:
    rng = np.random.default_rng(int(centre))
    kind = rng.integers(0, 2, 60)
    values = np.column_stack([rng.normal(centre, 0.5, 60), 3 * kind + rng.normal(0, 0.3, 60)])
    rows = [f"{a:.3f},{b:.3f},{'yes' if k else 'no'}" for (a, b), k in zip(values, kind, strict=True)]
    path.write_text("\n".join(["place,size,sold", *rows]) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "from nothing"])
def test_the_monthly_table_is_learned_behind_a_gate(begun: bool, tmp_path: Path) -> None:
    """In a model that is there already, which learns in fewer steps, or in one that the example begins itself."""
    if begun:
        new_model(tmp_path / "shop", network="mlp-8", settings={"training.iterations": 60, "inference.samples": 5})
    months = [tmp_path / "january.csv", tmp_path / "february.csv"]
    for path, centre in zip(months, (0.0, 6.0), strict=True):
        month(path, centre)
    command = ["bash", str(EXAMPLES / "monthly_table.sh"), str(tmp_path / "shop"), *map(str, months)]
    done = subprocess.run(
        command, env={**ENVIRONMENT, "LABEL": "sold"}, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "january" in done.stdout
    assert "february" in done.stdout


@pytest.mark.slow
def test_photos_are_served(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for number, name in enumerate(("dark", "light")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for index in range(8):
            pixels = rng.integers(0, 60, (8, 8)) + 150 * number
            image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / name / f"{index}.png")
    command = ["bash", str(EXAMPLES / "photos_server.sh"), str(tmp_path / "model"), str(tmp_path / "photos"), "0"]
    settings = {"NETWORK": "mlp-8", "SIZE": "[8,8]", "PYTHONUNBUFFERED": "1"}
    log = tmp_path / "log"
    with log.open("w") as output:
        server = subprocess.Popen(command, env={**ENVIRONMENT, **settings}, stdout=output, stderr=subprocess.STDOUT)
    try:
        address = _address(log, server)
        with urllib.request.urlopen(f"{address}/health", timeout=30) as answer:
            assert answer.status == 200
    finally:
        server.terminate()
        server.wait(timeout=30)


def _address(log: Path, server: "subprocess.Popen[bytes]") -> str:
    """Where the server says that it is."""
    for _ in range(600):
        words = [word for word in log.read_text().split() if word.startswith("http://127.0.0.1:")]
        if words:
            return words[0].rstrip("/.,")
        assert server.poll() is None, log.read_text()
        time.sleep(0.2)
    raise AssertionError(log.read_text())


def test_the_stream_is_followed() -> None:
    model = runpy.run_path(str(EXAMPLES / "stream.py"))["main"](length=140, grace=80, iterations=60)
    assert len(model.tasks) == 3
