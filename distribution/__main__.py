"""``python -m distribution [EXTRA ...]``: build wheel and source distribution, install them, and use every extra.

Both are built in an environment of its own from what git tracks, the wheel out of the source distribution. One
environment gets the package with what it requires, in the versions of constraints.txt; for the source distribution and
for every extra there is a copy of it, to which only that extra is added. In each, from a folder outside of the
repository, pip checks that the versions fit together, and smoke.py uses what the extra brings. Needs a network, or an
index that pip knows, some gigabytes of disk, and some minutes for each extra.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALONE = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
"""The environment of a user who has no copy of the repository."""


def main(given: list[str]) -> int:
    """Build, install and use; returns how many of the extras failed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    every = list(project["optional-dependencies"])
    parser = argparse.ArgumentParser(prog="python -m distribution", description=__doc__)
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help=f"some of {', '.join(every)}; all without it")
    parser.add_argument("--scratch", help="a folder for the environments; they are removed at the end")
    asked = parser.parse_args(given)
    if wrong := sorted(set(asked.extras) - set(every)):
        parser.error(f"there is no extra {', '.join(wrong)}; choose from {', '.join(every)}")
    place = Path(tempfile.mkdtemp(prefix="distribution-", dir=asked.scratch)).resolve()
    try:
        source, wheel = built(place)
        base = installed(place, wheel)
        jobs = [(name, f"{wheel}[{name}]", name) for name in asked.extras or every]
        if not asked.extras:
            jobs.insert(0, ("sdist", str(source), "nothing"))
        failed = [job[0] for job in jobs if not tried(*job, base, place)]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print(f"failed: {', '.join(failed)}" if failed else "everything that was asked for installs and works")
    return len(failed)


def built(place: Path) -> tuple[Path, Path]:
    """The source distribution and the wheel, of a clean copy."""
    copy, environment = place / "copy", place / "build"
    for name in filter(None, call("git", "ls-files", "-z", folder=ROOT).split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy / name)
    venv.create(environment, with_pip=True)
    pip(environment, "install", "build")
    call(environment / "bin" / "python", "-m", "build", "--outdir", place / "dist", copy, folder=place)
    (source,), (wheel,) = place.glob("dist/*.tar.gz"), place.glob("dist/*.whl")
    print(f"built: {source.name}, {wheel.name}", flush=True)
    return source, wheel


def installed(place: Path, wheel: Path) -> Path:
    """An environment with all that the package requires, from which it is removed again once it has been used."""
    base = place / "base"
    start = time.monotonic()
    venv.create(base, with_pip=True)
    pip(base, "install", "-c", ROOT / "constraints.txt", wheel)
    told("no extra", use(base, "nothing", place), start)
    pip(base, "uninstall", "-y", "metareplay")
    return base


def tried(name: str, what: str, smoke: str, base: Path, place: Path) -> bool:
    """Whether something can be installed into a copy of the environment, and used."""
    environment, start = place / name, time.monotonic()
    shutil.copytree(
        base, environment, symlinks=True, copy_function=os.link
    )  # pip replaces files, it never changes them
    try:
        pip(environment, "install", "-c", ROOT / "constraints.txt", what)
        pip(environment, "check")
        told(name, use(environment, smoke, place), start)
    except subprocess.CalledProcessError as error:
        print(f"{name}: FAILED: {error}\n{error.stdout[-3000:]}\n{error.stderr[-3000:]}", flush=True)
        return False
    finally:
        shutil.rmtree(environment)
    return True


def use(environment: Path, smoke: str, place: Path) -> str:
    """What smoke.py says, in an empty folder."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        shutil.copyfile(Path(__file__).with_name("smoke.py"), place / "smoke.py")
        return call(environment / "bin" / "python", place / "smoke.py", smoke, folder=Path(folder)).strip()


def pip(environment: Path, *words: object) -> None:
    python = environment / "bin" / "python"
    call(python, "-m", "pip", "--disable-pip-version-check", "--no-input", *words, folder=environment)


def call(*words: object, folder: Path) -> str:
    """What a command printed; an error if it failed."""
    done = subprocess.run([*map(str, words)], cwd=folder, env=ALONE, capture_output=True, text=True, check=True)
    return done.stdout


def told(name: str, done: str, start: float) -> None:
    print(f"{name}: {done.splitlines()[-1]} ({time.monotonic() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(min(main(sys.argv[1:]), 1))
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}\n{error.stdout[-3000:]}\n{error.stderr[-3000:]}")
