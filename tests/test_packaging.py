"""What is built can be installed and used: wheel, source distribution and every extra.

Building and installing is slow and needs no network: the wheel goes without its dependencies into an environment of its
own, which borrows them from this one.
"""

import fnmatch
import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = PYPROJECT["project"]["version"]
EXTRAS = sorted(PYPROJECT["project"]["optional-dependencies"])
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
ALONE = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
"""The environment of a user who has no copy of the repository."""


def call(*command: object, folder: Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=folder, env=ALONE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_every_file_of_the_package_is_shipped() -> None:
    """Setuptools takes modules by itself, everything else by the patterns of package-data."""
    package = ROOT / "src" / "metareplay"
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["metareplay"]
    others = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert others
    assert [name for name in others if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)] == []
    folders = {path.parent for path in package.rglob("*.py") if "__pycache__" not in path.parts}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean copy: what git tracks."""
    folder = tmp_path_factory.mktemp("source")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("needs git")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def unpacked(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, built and unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    build = f"from setuptools import build_meta; print(build_meta.build_sdist({str(folder)!r}))"
    call(sys.executable, "-c", build, folder=source)
    (archive,) = folder.glob("*.tar.gz")
    assert archive.name == f"metareplay-{VERSION}.tar.gz"
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    return folder / f"metareplay-{VERSION}"


@pytest.fixture(scope="module")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution as an installer would."""
    folder = tmp_path_factory.mktemp("wheel")
    call(*PIP, "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation", "-w", folder, ".", folder=unpacked)
    (file,) = folder.glob("*.whl")
    assert file.name == f"metareplay-{VERSION}-py3-none-any.whl"
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    call(*PIP, "install", "-q", "--no-deps", "--no-index", "--target", site, wheel, folder=folder)
    # a path in a .pth file is searched, but what lies there is not installed: no editable copy of this repository
    (site / "borrowed.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return folder


@pytest.mark.slow
def test_the_source_distribution_is_complete(source: Path, unpacked: Path) -> None:
    wanted = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert [name for name in sorted(wanted) if ".egg-info/" not in name and not (unpacked / name).is_file()] == []


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(source: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        names = {name for name in content.namelist() if not name.endswith("/")}
    tracked = {
        path.relative_to(source / "src").as_posix()
        for path in (source / "src").rglob("*")
        if path.is_file() and "egg-info" not in path.parent.name
    }
    assert {name for name in names if ".dist-info/" not in name} == tracked


@pytest.mark.slow
def test_the_installed_command_works_elsewhere(installed: Path, tmp_path: Path) -> None:
    python, command = installed / "bin" / "python", installed / "bin" / "metareplay"
    if not command.exists():  # pip install --target puts commands below it
        (command,) = installed.glob("lib/python*/site-packages/bin/metareplay")
    where = call(python, "-c", "import metareplay; print(metareplay.__file__)", folder=tmp_path)
    assert Path(where.strip()).is_relative_to(installed)
    assert call(python, command, "--version", folder=tmp_path) == f"metareplay {VERSION}\n"
    quick = ("--set", "training.iterations=10", "--set", "inference.samples=3", "--set", "report.references=false")
    call(python, command, "run", "split-digits", *quick, "--out", "run", folder=tmp_path)
    assert (tmp_path / "run" / "report.html").is_file()
    call(python, command, "tasks", "run", folder=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_resolves(extra: str, wheel: Path, tmp_path: Path) -> None:
    """All that it names is there, in versions that fit together; nothing is installed."""
    said = call(*PIP, "install", "--dry-run", "--no-index", f"{wheel}[{extra}]", folder=tmp_path)
    news = [line for line in said.splitlines() if line.startswith("Would install")]
    assert news in ([], [f"Would install metareplay-{VERSION}"])
