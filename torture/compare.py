"""What a folder holds, but for times: two runs of the same command leave the same."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

VOLATILE = re.compile(r".*seconds.*|peak_memory_mib|date|serial")
"""Facts that depend on the clock, the machine, or how often a run was interrupted."""
UNCOMPARED = ("log.txt", "report.html", "table.md")
"""Only whether they exist: they tell of times."""


def contents(folder: Path) -> dict[str, str]:
    """A checksum of every file by its path; folders end in a stroke."""
    found = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        name = str(path.relative_to(folder))
        found[name + "/" * path.is_dir()] = "" if path.is_dir() else _checksum(path)
    return found


def _checksum(path: Path) -> str:
    if path.name in UNCOMPARED:
        return "-"
    if path.suffix == ".json":
        content: bytes = json.dumps(timeless(json.loads(path.read_text())), sort_keys=True).encode()
    elif path.parent.name in ("checkpoint", ".work") and path.suffix == ".safetensors":
        content = b"".join(_checkpoint(path))
    elif path.name == "README.md":
        content = re.sub(r"20\d\d-\d\d-\d\d[T\d:Z]*", "DATE", path.read_text()).encode()
    else:
        content = path.read_bytes()
    return sha256(content).hexdigest()


def timeless(value: Any) -> Any:
    """Without the facts that change from one time to the next."""
    if isinstance(value, Mapping):
        return {key: timeless(part) for key, part in value.items() if not VOLATILE.fullmatch(key)}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def _checkpoint(path: Path) -> Iterator[bytes]:
    from metareplay.training.checkpoint import read_tensors

    read = read_tensors(path)
    yield json.dumps(timeless(read.facts), sort_keys=True).encode()
    for name in sorted(read.tensors):
        yield name.encode() + read.tensors[name].numpy().tobytes()


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """In words; empty if both are the same."""
    words = [f"{name} is missing" for name in wanted if name not in found]
    words += [f"{name} is left over" for name in found if name not in wanted]
    return words + [f"{name} is different" for name in wanted if name in found and found[name] != wanted[name]]


def models_in(folder: Path) -> list[Path]:
    """The folders of models in a folder."""
    return [Path(place) for place, _, files in os.walk(folder) if "model.safetensors" in files]


def model_checksum(folder: Path) -> str:
    """Of a model's one file."""
    return sha256((folder / "model.safetensors").read_bytes()).hexdigest()
