"""A stored model: its layout, its generations and history, what is refused, and version 0.1."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from metareplay import ContinualClassifier
from metareplay.errors import CheckpointError, ConfigError, MetaReplayError
from metareplay.learner import generations
from metareplay.learner.generations import mend
from metareplay.learner.model_file import pack, read_facts, read_model_file
from metareplay.learner.store import (
    HistoryEntry,
    compact,
    load_model,
    read_history,
    restore_generation,
    save_model,
    writing,
)

FIRST_FORMAT = Path(__file__).parent / "first_format"
X = np.random.default_rng(0).normal(size=(24, 2)).astype(np.float32)
Y = np.where(X[:, 0] > 0, "high", "low")


def learned(tasks: int = 1) -> ContinualClassifier:
    model = ContinualClassifier("pr-bbb", "mlp-3", settings={"training.iterations": 3, "inference.samples": 2})
    for task in range(tasks):
        model.learn_task(X + task, Y, name=f"task {task}")
    return model


@pytest.fixture(scope="module")
def one() -> ContinualClassifier:
    return learned(1)


@pytest.fixture(scope="module")
def two() -> ContinualClassifier:
    return learned(2)


def save(folder: Path, model: ContinualClassifier, **options: Any) -> int:
    assert model.learner is not None
    return save_model(folder, model.learner, model.tasks, model.scaling.tensors, **options)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_each_save_is_a_generation_and_an_equal_model_is_none(
    one: ContinualClassifier, two: ContinualClassifier, tmp_path: Path
) -> None:
    assert [save(tmp_path, model) for model in (one, one, two, one)] == [1, 1, 2, 3]
    assert load_model(tmp_path).generation == 3
    assert names(tmp_path) == {"model.safetensors", "config.json", "README.md"}


def test_an_edited_copy_of_the_facts_does_not_stop_the_next_save(
    one: ContinualClassifier, two: ContinualClassifier, tmp_path: Path
) -> None:
    save(tmp_path, one)
    facts = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**facts, "generation": "first"}))
    assert save(tmp_path, two) == 2
    assert json.loads((tmp_path / "config.json").read_text())["generation"] == 2


def test_the_same_model_is_the_same_bytes(one: ContinualClassifier, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        save(tmp_path / folder, one, entry=HistoryEntry(verb="learn"))
    for name in ("model.safetensors", "config.json", "README.md"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_history_and_kept_versions(one: ContinualClassifier, two: ContinualClassifier, tmp_path: Path) -> None:
    save(tmp_path, one, entry=HistoryEntry(verb="learn", tasks=("task 0",), examples=24, fingerprint="f00"))
    save(tmp_path, two, entry=HistoryEntry(verb="add-task", figures={"accuracy": 0.5}), keep_previous=True)
    first, second = read_history(tmp_path)
    assert (first.generation, first.verb, first.examples, second.figures) == (1, "learn", 24, {"accuracy": 0.5})
    assert first.date.endswith("Z")
    assert names(tmp_path / "versions") == {"1.safetensors"}
    assert len(load_model(tmp_path, generation=1).tasks) == 1
    assert len(load_model(tmp_path, generation=2).tasks) == 2
    with pytest.raises(CheckpointError, match="does not keep generation 7 of its model; it has 1, 2"):
        load_model(tmp_path, generation=7)
    assert restore_generation(tmp_path, 1, HistoryEntry(verb="undo")) == 3
    assert len(load_model(tmp_path).tasks) == 1
    assert [entry.verb for entry in read_history(tmp_path)] == ["learn", "add-task", "undo"]
    assert restore_generation(tmp_path, 2, HistoryEntry(verb="undo")) == 4  # what was undone is kept, too
    assert len(load_model(tmp_path).tasks) == 2


def test_compact_removes_versions_and_left_overs(
    one: ContinualClassifier, two: ContinualClassifier, tmp_path: Path
) -> None:
    save(tmp_path, one)
    save(tmp_path, two, keep_previous=True)
    (tmp_path / ".config.json.abc.tmp").write_bytes(b"1234")
    size = (tmp_path / "versions" / "1.safetensors").stat().st_size
    assert compact(tmp_path) == size + 4
    assert names(tmp_path) == {"model.safetensors", "config.json", "README.md"}
    assert compact(tmp_path) == 0
    assert len(load_model(tmp_path).tasks) == 2


def test_what_killed_writers_left_is_removed_by_the_next(one: ContinualClassifier, tmp_path: Path) -> None:
    tmp_path.joinpath(".model.safetensors.x1.tmp").write_bytes(b"half")
    tmp_path.joinpath(".mine.tmp").write_bytes(b"not of the store")
    save(tmp_path, one)
    assert {name for name in names(tmp_path) if name.endswith(".tmp")} == {".mine.tmp"}


def test_a_step_that_never_came_true_is_not_in_the_history(one: ContinualClassifier, tmp_path: Path) -> None:
    save(tmp_path, one, entry=HistoryEntry(verb="learn"))
    entries = json.loads((tmp_path / "history.json").read_text())
    pending = [*entries, {**entries[0], "generation": 2, "verb": "killed"}]  # as written before the model is switched
    (tmp_path / "history.json").write_text(json.dumps(pending))
    assert [entry.verb for entry in read_history(tmp_path)] == ["learn"]
    save(tmp_path, one, entry=HistoryEntry(verb="again"))
    assert [(entry.verb, entry.generation) for entry in read_history(tmp_path)] == [("learn", 1), ("again", 2)]


def test_a_config_that_a_killed_writer_left_behind_is_accepted_and_mended(
    one: ContinualClassifier, two: ContinualClassifier, tmp_path: Path
) -> None:
    save(tmp_path, one)
    older = (tmp_path / "config.json").read_text()
    save(tmp_path, two)
    (tmp_path / "config.json").write_text(older)
    assert len(load_model(tmp_path).tasks) == 2
    save(tmp_path, two)
    assert json.loads((tmp_path / "config.json").read_text())["generation"] == 2
    (tmp_path / "config.json").unlink()
    assert len(load_model(tmp_path).tasks) == 2


def edit_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    facts = json.loads((folder / "config.json").read_text())
    change(facts)
    (folder / "config.json").write_text(json.dumps(facts))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda facts: facts["tasks"].pop(0), "tasks"),
        (lambda facts: facts["tasks"][0]["classes"].reverse(), "tasks"),
        (lambda facts: facts["config"].update(method="sp-bbb"), "config"),
        (lambda facts: facts.update(generation=9), "generation"),
        (lambda facts: facts.pop("heads"), "heads"),
    ],
    ids=["task removed", "labels swapped", "method", "newer", "key removed"],
)
def test_an_edited_config_is_refused(
    change: Callable[[dict[str, Any]], object],
    key: str,
    two: ContinualClassifier,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(generations, "TRIES", 2)
    save(tmp_path, two)
    edit_config(tmp_path, change)
    with pytest.raises(CheckpointError, match=rf"contradict each other \(in {key}\).*remove config.json"):
        load_model(tmp_path)


def test_keys_that_others_add_to_the_config_do_no_harm(one: ContinualClassifier, tmp_path: Path) -> None:
    save(tmp_path, one)
    edit_config(tmp_path, lambda facts: facts.update(architectures=["x"]))
    assert len(load_model(tmp_path).tasks) == 1


@pytest.mark.parametrize(
    ("part", "value"), [("model", torch.nan), ("model", torch.inf), ("criteria.calibration", torch.nan)]
)
def test_weights_that_are_not_numbers_are_refused(
    part: str, value: float, one: ContinualClassifier, tmp_path: Path
) -> None:
    save(tmp_path, one)
    facts, tensors = read_model_file(tmp_path / "model.safetensors")
    name = next(name for name in tensors if name.startswith(f"{part}."))
    tensors[name].view(-1)[0] = value
    packed = pack(tensors)
    content = b"".join(packed.with_facts({**facts, "checksum": packed.checksum}))
    (tmp_path / "model.safetensors").write_bytes(content)
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match=rf"has NaN or infinite numbers in '{part}\."):
        load_model(tmp_path)


def test_facts_that_were_changed_are_refused_without_a_config_too(one: ContinualClassifier, tmp_path: Path) -> None:
    save(tmp_path, one)
    path = tmp_path / "model.safetensors"
    (tmp_path / "config.json").unlink()
    before, name = path.read_bytes(), load_model(tmp_path).tasks[0].name.encode()
    assert before.count(name) > 0
    path.write_bytes(before.replace(name, name[:-1] + b"~", 1))
    with pytest.raises(CheckpointError, match="the checksum of its metadata does not match"):
        load_model(tmp_path)


def test_a_class_less_than_outputs_is_refused(one: ContinualClassifier, tmp_path: Path) -> None:
    save(tmp_path, one)
    facts, tensors = read_model_file(tmp_path / "model.safetensors")
    facts["tasks"][0]["classes"].pop()
    (tmp_path / "model.safetensors").write_bytes(b"".join(pack(tensors).with_facts(facts)))
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match="names 1 classes, but has 2 outputs"):
        load_model(tmp_path)


def test_what_a_killed_writer_left_is_mended_and_the_model_stays(one: ContinualClassifier, tmp_path: Path) -> None:
    save(tmp_path, one)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "config.json").unlink()
    (tmp_path / ".README.md.abcd1234.tmp").touch()
    mend(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_a_strategy_keeps_is_stored(tmp_path: Path) -> None:
    model = ContinualClassifier("der++", "mlp-3", settings={"training.iterations": 2})
    for task, names in enumerate((("a", "b"), ("c", "d"))):
        model.learn_task(X + task, np.where(X[:, 0] > 0, *names))
    assert model.learner is not None
    assert model.learner.tensors(training=False)["memory.widths"].unique().tolist() == [2, 4]
    model.save(tmp_path)
    assert np.array_equal(ContinualClassifier.load(tmp_path).predict_proba(X, 0), model.predict_proba(X, 0))


def test_weights_that_are_not_numbers_are_not_saved(tmp_path: Path) -> None:
    model = learned()
    assert model.learner is not None
    with torch.no_grad():
        next(model.learner.model.task_map.parameters()).view(-1)[0] = torch.nan
    with pytest.raises(CheckpointError, match="NaN or infinite"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("cut", [0, 5, 8, 100, -1])
def test_a_cut_file_is_refused(cut: int, one: ContinualClassifier, tmp_path: Path) -> None:
    save(tmp_path, one)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is"):
        load_model(tmp_path)
    assert save(tmp_path, one) == 2  # a damaged model may be replaced
    assert load_model(tmp_path).generation == 2


def test_any_changed_byte_of_the_weights_is_noticed(one: ContinualClassifier, tmp_path: Path) -> None:
    save(tmp_path, one)
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    for position in range(9, len(whole), len(whole) // 40):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        with pytest.raises(MetaReplayError):
            load_model(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_files_of_something_else_are_left_alone(name: str, one: ContinualClassifier, tmp_path: Path) -> None:
    content = b'{"name": "my web page"}' if name == "config.json" else b"".join((b"\2\0\0\0\0\0\0\0", b"{}"))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=f"{name} does not belong to a metareplay model; choose another folder"):
        one.save(tmp_path)
    assert (tmp_path / name).read_bytes() == content
    assert names(tmp_path) == {name}


def test_a_readme_of_ones_own_is_left_alone(one: ContinualClassifier, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# My project")
    one.save(tmp_path)
    assert (tmp_path / "README.md").read_text() == "# My project"


def test_a_failed_save_changes_nothing(
    one: ContinualClassifier, two: ContinualClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, one, entry=HistoryEntry(verb="learn"))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MetaReplayError, match="No space left on device"):
        save(tmp_path, two, entry=HistoryEntry(verb="add-task"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_second_writer_is_told_so(one: ContinualClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    monkeypatch.setattr(generations, "PATIENCE", 0.05)
    with ThreadPoolExecutor(1) as other, writing(tmp_path):
        assert save(tmp_path, one) == 1  # the same thread may
        with pytest.raises(ConfigError, match=r"another process is writing to .*; wait for it"):
            other.submit(save, tmp_path, one).result()
    assert not (tmp_path / ".lock").exists()


def test_a_linked_file_is_replaced_and_its_target_kept(one: ContinualClassifier, tmp_path: Path) -> None:
    """The hub's cache holds links to files that other versions share."""
    save(tmp_path / "blobs", one)
    (tmp_path / "model").mkdir()
    before = (tmp_path / "blobs" / "model.safetensors").read_bytes()
    (tmp_path / "model" / "model.safetensors").symlink_to(tmp_path / "blobs" / "model.safetensors")
    assert load_model(tmp_path / "model").generation == 1
    save(tmp_path / "model", one, entry=HistoryEntry(verb="learn"), keep_previous=True)
    assert (tmp_path / "blobs" / "model.safetensors").read_bytes() == before
    assert load_model(tmp_path / "model").generation == 2
    assert load_model(tmp_path / "model", generation=1).generation == 1


def test_a_damaged_history_is_named(one: ContinualClassifier, tmp_path: Path) -> None:
    save(tmp_path, one)
    (tmp_path / "history.json").write_text('[{"verb": 3}]')
    with pytest.raises(CheckpointError, match=r"history\.json is damaged"):
        read_history(tmp_path)
    with pytest.raises(CheckpointError, match=r"history\.json is damaged"):
        save(tmp_path, one, entry=HistoryEntry(verb="learn"))
    assert load_model(tmp_path).generation == 1


def test_a_model_of_version_0_1_loads_and_is_migrated(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(FIRST_FORMAT, folder)
    model = ContinualClassifier.load(folder)
    assert load_model(tmp_path).generation == 0
    assert model.task_names == ["spring", "summer"]
    x = np.array([[1.0, 0.0], [-1.0, 0.0], [4.0, 3.0], [2.0, 3.0]])
    assert list(model.predict(x, "spring")) == EXPECTED
    before = model.predict_proba(x)
    model.save(folder)
    assert names(folder) == {"model.safetensors", "config.json", "README.md"}
    again = ContinualClassifier.load(folder)
    assert np.array_equal(again.predict_proba(x), before)


EXPECTED = ["spring-high", "spring-low", "spring-low", "spring-low"]
"""What the version that wrote the model answered."""


@pytest.mark.parametrize("how", ["task removed", "other weights", "path"])
def test_a_changed_model_of_version_0_1_is_refused(how: str, tmp_path: Path) -> None:
    shutil.copytree(FIRST_FORMAT, tmp_path, dirs_exist_ok=True)
    facts = json.loads((tmp_path / "model.json").read_text())
    if how == "task removed":
        del facts["tasks"][0]
    elif how == "path":
        facts["weights"] = f"../{tmp_path.name}/{facts['weights']}"
    else:
        (tmp_path / facts["weights"]).rename(tmp_path / "weights-00000000.safetensors")
        facts["weights"] = "weights-00000000.safetensors"
    (tmp_path / "model.json").write_text(json.dumps(facts))
    with pytest.raises(CheckpointError):
        load_model(tmp_path)


def test_the_card_tells_the_facts_and_no_markup_of_others(tmp_path: Path) -> None:
    model = ContinualClassifier("sp-dirac", "mlp-3", settings={"training.iterations": 1})
    model.learn_task(X, np.where(X[:, 0] > 0, "<b>a|b", "c\nd"), name="[x](http://evil) | *t*")
    entry = HistoryEntry(
        verb="learn", tasks=model.tasks[0][:1], examples=24, figures={"accuracy": 0.75}, fingerprint="f"
    )
    save(tmp_path, model, entry=entry)
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: metareplay\n")
    assert "| 0 | \\[x\\]\\(http://evil\\) \\| \\*t\\* | &lt;b&gt;a\\|b, c d | 24 |" in card
    assert "| 1 | learn | " in card
    assert "accuracy 0.75 |" in card
    assert "fingerprint `f`" in card
    assert 'ContinualClassifier.load("' in card
    facts = read_facts(tmp_path / "model.safetensors")
    assert facts == json.loads((tmp_path / "config.json").read_text())


def test_the_time_to_load_grows_with_the_tasks_not_their_square(one: ContinualClassifier) -> None:
    """A network that does not grow is built once, whatever the number of tasks."""
    built = []
    assert one.learner is not None
    model = one.learner.model
    factory = model.factory
    heads, tensors = model.head_bounds(), model.tensors()
    name = next(name for name in tensors if name.endswith("task_embeddings.0"))
    many = {**tensors, **{name[:-1] + str(task): tensors[name] for task in range(50)}}
    fresh = learned(1).learner
    assert fresh is not None
    fresh.model.factory = lambda outputs: built.append(outputs) or factory(outputs)  # type: ignore[func-returns-value]
    fresh.model.restore(heads * 50, many)
    assert fresh.model.num_tasks == 50
    assert len(built) == 1
    assert torch.equal(fresh.model.task_map.theta(49), model.task_map.theta(0))
