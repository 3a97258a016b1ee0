"""docs/add_a_method.md, followed literally: its package is installed, used, and passes the conformance suites."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = """
import json, sys
import metareplay.experiments.curves
from metareplay.cli.main import main
metareplay.experiments.curves.FINEST = 21  # as the fixture small_maps
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["metareplay", *arguments]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    print("\\f", end="")
"""
"""Several commands in one process, so that it imports everything once; what they print is parted by form feeds."""
PAGE = (ROOT / "docs" / "add_a_method.md").read_text(encoding="utf-8")


def code(language: str) -> list[str]:
    """The page's blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def call(*command: str, folder: Path, path: Path | None = None) -> str:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(map(str, filter(None, (path, ROOT / "src")))),
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages that has the page's in it, installed by pip from the page's two files."""
    source, site = tmp_path_factory.mktemp("my-parts"), tmp_path_factory.mktemp("site")
    (toml,) = code("toml")
    (source / "pyproject.toml").write_text(toml)
    (source / "my_parts.py").write_text("\n".join(code("python")))
    quietly = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    call(sys.executable, "-m", "pip", "install", *quietly, "--target", str(site), ".", folder=source)
    return site


def test_its_commands_run(installed: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "inputs.npy", np.zeros((3, 1, 8, 8), dtype=np.float32))
    use, _ = code("bash")
    lines = use.replace("\\\n", " ").splitlines()
    assert lines[0] == "pip install -e ."
    calls = [shlex.split(line) for line in lines[1:]]
    assert {program for program, *_ in calls} == {"metareplay"}
    arguments = json.dumps([arguments for _, *arguments in calls])
    said = call(sys.executable, "-c", COMMANDS, arguments, folder=tmp_path, path=installed).split("\f")[:-1]
    assert len(said) == len(calls)
    assert all(name in said[0] for name in ("pr-laplace", "sp-tc-laplace", "kept-by-work"))
    assert (tmp_path / "runs" / "kept-by-work" / "results.json").is_file()
    assert len(said[-1].splitlines()) == 4  # a header and three answers


def test_its_parts_pass_the_conformance_suites(installed: Path, tmp_path: Path) -> None:
    (choice,) = re.findall(r"-k '([^']+)'", PAGE)
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-k",
        choice,
        "tests/conformance",
    )
    passed = re.findall(r"(\d+) passed", call(*command, folder=ROOT, path=installed))
    assert int(passed[-1]) > 80  # each of the suites has seen the new parts
