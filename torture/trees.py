"""Damage to folders: files that are missing, exchanged, links, pipes; and the classes of nonsense that have a name."""

import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from torture.mutations import mutate

Generator = random.Random


def damage(folder: Path, files: Sequence[Path], other: Path | None, generator: Generator) -> str:
    """Damage one of some files of a folder; returns what was done. ``other`` is a folder of the same kind."""
    path = generator.choice(files)
    name = str(path.relative_to(folder))
    if generator.random() < 0.12:
        return f"{name}: {_exchange(folder, path, other, generator)}"
    content, done = path.read_bytes(), []
    for _ in range(generator.choice((1, 1, 1, 2))):
        content, kind = mutate(path.name, content, generator)
        done.append(kind)
    path.write_bytes(content)
    return f"{name}: {', '.join(done)}"


def _exchange(folder: Path, path: Path, other: Path | None, generator: Generator) -> str:
    """Something else in a file's place."""
    twin = None if other is None else other / path.relative_to(folder)
    kind = generator.randrange(6)
    if kind == 0 and twin is not None and twin.is_file():
        shutil.copyfile(twin, path)
        return "another's"
    if kind == 1:
        siblings = [file for file in path.parent.iterdir() if file.is_file()]
        content = generator.choice(siblings).read_bytes()
        path.write_bytes(content)
        return "a neighbour's"
    path.unlink()
    if kind == 2:
        path.mkdir()
        return "a folder"
    if kind == 3:
        path.symlink_to(generator.choice((path.name, "/nowhere", "/etc/passwd", ".", "/dev/zero")))
        return "a link"
    if kind == 4:
        os.mkfifo(path)
        return "a pipe"
    return "missing"


def rewritten(folder: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], *, config: bool) -> None:
    """A model whose facts or tensors were changed with all checksums right; without or with its config.json."""
    from metareplay.learner.model_file import pack, read_model_file

    path = folder / "model.safetensors"
    facts, tensors = read_model_file(path)
    change(facts, tensors)
    packed = pack(tensors)
    facts["checksum"] = packed.checksum
    path.write_bytes(b"".join(packed.with_facts(facts)))
    if config:
        (folder / "config.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    else:
        (folder / "config.json").unlink()


def nan_weights(folder: Path, generator: Generator) -> str:
    """Weights that are not numbers, whose checksum is right."""

    def change(facts: dict[str, Any], tensors: dict[str, Any]) -> None:
        names = [name for name in tensors if name.startswith("model.") and tensors[name].is_floating_point()]
        tensor = tensors[generator.choice([name for name in names if tensors[name].numel()])]
        tensor.view(-1)[generator.randrange(tensor.numel())] = float(generator.choice(("nan", "inf", "-inf")))

    rewritten(folder, change, config=generator.random() < 0.5)
    return "weights that are not finite"


def lost_task(folder: Path, generator: Generator) -> str:
    """A task is deleted from the facts, whose labels would shift."""

    def change(facts: dict[str, Any], tensors: dict[str, Any]) -> None:
        del facts["tasks"][generator.randrange(len(facts["tasks"]))]

    rewritten(folder, change, config=generator.random() < 0.5)
    return "a task deleted from the facts"


def lost_class(folder: Path, generator: Generator) -> str:
    """A class is deleted from the facts."""

    def change(facts: dict[str, Any], tensors: dict[str, Any]) -> None:
        classes = generator.choice(facts["tasks"])["classes"]
        del classes[generator.randrange(len(classes))]

    rewritten(folder, change, config=generator.random() < 0.5)
    return "a class deleted from the facts"


def shown_otherwise(folder: Path, generator: Generator) -> str:
    """The copy of the facts for people says something else than the model."""
    path = folder / "config.json"
    facts = json.loads(path.read_text())
    task = generator.choice(facts["tasks"])
    task["name"] = task["name"] + "x" if generator.random() < 0.5 else task["name"][::-1]
    path.write_text(json.dumps(facts))
    return "config.json names another task"


def doubled_key(path: Path, generator: Generator) -> str:
    """A key of a YAML file stands twice, with another value."""
    text = path.read_text()
    groups = [key for key, value in yaml.safe_load(text).items() if isinstance(value, int | str | bool)]
    key = generator.choice(groups)
    path.write_text(f"{text}{key}: {generator.choice(('3', 'x', 'true'))}\n")
    return f"{key} stands twice"


def empty_value(path: Path, generator: Generator) -> str:
    """A setting without a value, ``{}``."""
    content = yaml.safe_load(path.read_text())
    group = content[generator.choice(("training", "inference", "strategy"))]
    key = generator.choice(list(group))
    group[key] = {}
    path.write_text(yaml.safe_dump(content))
    return f"{key} is empty"


def complex_array(path: Path, generator: Generator) -> str:
    """Inputs that are complex numbers."""
    import numpy as np

    with np.load(path) as stored:
        arrays = dict(stored)
    arrays["x"] = arrays["x"] + 1j * generator.random()
    np.savez(path, **arrays)
    return "complex numbers"


def huge_labels(path: Path, generator: Generator) -> str:
    """Integer labels that are no longer different as floating-point numbers, in a column with a gap."""
    begin = 2**53 + 2 * generator.randrange(10**6)
    rows = [f"{generator.gauss(0, 1):.3f},{generator.gauss(0, 1):.3f},jan,{begin + row % 2}" for row in range(20)]
    path.write_text("\n".join(["width,height,month,product", *rows, ""]))
    return "labels beyond 2**53"
