"""A model's folder: one file that is the model, switched by one rename, and the files around it.

``model.safetensors`` alone is the truth. Each time it is written, its generation is one higher. ``config.json`` repeats
its facts for people and for the Hugging Face hub, ``README.md`` tells them in words, ``history.json`` says how the
model came about, and ``versions/`` keeps earlier generations where that was asked for. Any number of readers, one
writer.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from metareplay.errors import CheckpointError, ConfigError
from metareplay.files import Content, remove_left_overs, sync_folder, write_together
from metareplay.learner.history import HISTORY, HistoryEntry, history_text, read_entries
from metareplay.learner.model_card import MADE_HERE, model_card
from metareplay.learner.model_file import FORMAT, ModelFile, pack, read_facts, read_model_file
from metareplay.locks import only_writer
from metareplay.texts import read_json_file

MODEL, CONFIG, CARD, VERSIONS, WORK = "model.safetensors", "config.json", "README.md", "versions", ".work"
FILES = (MODEL, CONFIG, CARD, HISTORY)
PATIENCE = 10.0
"""Seconds for which a second writer waits."""
TRIES = 50
"""How often a reader looks again while a writer exchanges the files."""
_held = threading.local()


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Be the one writer of a model's folder, also over several calls; within one thread it may be nested."""
    held: set[Path] = _held.__dict__.setdefault("folders", set())
    place = Path(os.path.abspath(folder))
    if place in held:
        yield
        return
    with only_writer(folder, wait=PATIENCE, advice="wait for it, stop it, or choose another folder"):
        held.add(place)
        try:
            yield
        finally:
            held.discard(place)


def write_generation(
    folder: Path,
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    *,
    entry: HistoryEntry | None = None,
    keep_previous: bool = False,
    generation: int | None = None,
) -> int:
    """Make this the folder's model; for the one writer. Returns its generation. An equal model is left as it is."""
    before, packed = _facts_or_none(folder / MODEL), pack(tensors)
    _refuse_foreign(folder, before)
    remove_left_overs(folder, FILES)
    facts = {**facts, "checksum": packed.checksum, "format": FORMAT}
    unchanged = entry is None and before is not None and generation in (None, before["generation"])
    if before is not None and unchanged:
        unchanged = _holds(folder / MODEL, packed.with_facts({**facts, "generation": before["generation"]}))
    number = before["generation"] if before and unchanged else generation or _latest_generation(folder, before) + 1
    facts = {**facts, "generation": number}
    entries = [old for old in read_entries(folder) if old.generation < number + unchanged]
    entries += [] if entry is None else [entry.dated(number)]
    files: dict[Path, Content] = {folder / HISTORY: history_text(entries)} if entries or _has(folder / HISTORY) else {}
    if not unchanged:
        if keep_previous and before is not None:
            keep_version(folder, before["generation"])
        told = (_read_config(folder) or {}).get("generation", 0)
        if not isinstance(told, int) or told >= number:
            (folder / CONFIG).unlink()  # it would seem to contradict the model for a moment
        files[folder / MODEL] = packed.with_facts(facts)  # once this file is in its place, it is the model
    files[folder / CONFIG] = json.dumps(facts, indent=1, sort_keys=True) + "\n"
    if not _has(folder / CARD) or _is_made_here(folder / CARD):
        files[folder / CARD] = model_card(facts, entries)
    write_together(files)
    return number


def mend(folder: Path) -> None:
    """Bring the files around the model up to date, after a writer that was killed; for the one writer."""
    facts, tensors = read_model_file(folder / MODEL)
    write_generation(folder, tensors, facts, generation=facts["generation"])


def _latest_generation(folder: Path, facts: Mapping[str, Any] | None) -> int:
    """The highest number that anything in the folder bears; 0 if there is nothing."""
    told = [(content or {}).get("generation") for content in (facts, _read_config(folder))]
    return max([0, *versions(folder), *(number for number in told if isinstance(number, int))])


def read_generation(folder: Path, generation: int | None = None) -> ModelFile:
    """The model, or one of its kept versions; needs no lock."""
    for attempt in range(TRIES):
        if generation is not None and (path := version_path(folder, generation)).is_file():
            return read_model_file(path)
        model = read_model_file(folder / MODEL)
        if generation is not None and model.facts.get("generation") != generation:
            known = ", ".join(map(str, [*versions(folder), model.facts.get("generation")]))
            raise CheckpointError(f"{folder} does not keep generation {generation} of its model; it has {known}")
        if _agrees(folder, model.facts, last=attempt == TRIES - 1):
            break
        time.sleep(0.01)
    return model


def _agrees(folder: Path, facts: Mapping[str, Any], *, last: bool) -> bool:
    """Whether ``config.json`` repeats these facts; it may be missing, or older if a writer was killed."""
    path = folder / CONFIG
    config = _read_config(folder)
    if config is None and _has(path):
        raise CheckpointError(f"{path} is damaged; remove it: the model is complete without it")
    if config is None:
        return True
    told = config.get("generation")
    number = told if isinstance(told, int) else facts["generation"]
    if number < facts["generation"]:
        return True
    differing = [key for key in facts if key not in config or not _same(config[key], facts[key])]
    if differing and (last or number == facts["generation"]):
        raise CheckpointError(
            f"{path} and {MODEL} next to it contradict each other (in {', '.join(sorted(differing))}): one of them was "
            f"edited or replaced. If {MODEL} is the model you want, remove {CONFIG}: the model is complete without it"
        )
    return not differing


def versions(folder: Path) -> list[int]:
    """The generations that are kept besides the newest."""
    return sorted(int(path.stem) for path in (folder / VERSIONS).glob("*.safetensors") if path.stem.isdecimal())


def version_path(folder: Path, generation: int) -> Path:
    """Where an earlier generation is kept."""
    return folder / VERSIONS / f"{generation}.safetensors"


def keep_version(folder: Path, generation: int) -> None:
    """Keep the present file next to the new one: by a second name, or a copy where a file can have only one."""
    path = version_path(folder, generation)
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)  # of a writer that was killed
    try:
        os.link(os.path.realpath(folder / MODEL), path)
        sync_folder(path.parent)
    except OSError:
        write_together({path: (folder / MODEL).read_bytes()})


def compact(folder: Path) -> int:
    """Remove kept versions, and what killed writers left behind; returns the bytes freed."""
    with writing(folder):
        freed = remove_left_overs(folder, FILES)
        for path in (folder / VERSIONS, folder / WORK):
            if path.is_dir() and not path.is_symlink():
                freed += sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
                shutil.rmtree(path)
        sync_folder(folder)
    return freed


def read_history(folder: Path) -> list[HistoryEntry]:
    """What happened to the model, from the first entry to the newest; empty if nothing was recorded."""
    number = (_facts_or_none(folder / MODEL) or {}).get("generation", 0)
    return [entry for entry in read_entries(folder) if entry.generation <= number]  # later ones never came true


def _same(first: Any, second: Any) -> bool:
    """Equal as JSON: tuples are lists, and NaN is NaN."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def _is_made_here(card: Path) -> bool:
    """Whether a card was written by this package; one of the user's own is left as it is, whatever it is."""
    return card.is_file() and MADE_HERE in card.read_text(encoding="utf-8", errors="replace")


def _has(path: Path) -> bool:
    return os.path.lexists(path)


def _holds(path: Path, content: tuple[bytes, memoryview]) -> bool:
    """Whether a file has exactly this content."""
    with path.open("rb") as file:
        return file.read(len(content[0])) == content[0] and file.read() == content[1]


def _facts_or_none(path: Path) -> dict[str, Any] | None:
    """The facts of a model file; None if there is none that can be read."""
    with suppress(CheckpointError):
        facts = read_facts(path) or {}
        return facts if isinstance(facts.get("generation"), int) else None
    return None


def _read_config(folder: Path) -> dict[str, Any] | None:
    """The content of ``config.json``; None if it cannot be read."""
    try:
        content = read_json_file(folder / CONFIG)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _refuse_foreign(folder: Path, facts: Mapping[str, Any] | None) -> None:
    """A folder with files of the same names that are of something else is left alone."""
    foreign = None
    with suppress(CheckpointError):  # a damaged model may be replaced
        foreign = MODEL if facts is None and _has(folder / MODEL) and read_facts(folder / MODEL) is None else None
    if foreign is None and _has(folder / CONFIG):
        config = _read_config(folder)
        ours = config is not None and str(config.get("format", "")).startswith("metareplay-model-")
        foreign = None if ours or _has(folder / MODEL) else CONFIG
    if foreign is not None:
        raise ConfigError(
            f"{folder / foreign} does not belong to a metareplay model; choose another folder, or move it away"
        )
