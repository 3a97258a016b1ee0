"""Checkpoints: written in full or not at all, refused when damaged, and never the only one."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save
from torch import Tensor

from metareplay.errors import CheckpointError, MetaReplayError
from metareplay.files import write_atomically
from metareplay.training.checkpoint import CheckpointFolder, read_tensors, write_tensors

TENSORS = {
    "weights": torch.arange(12.0).reshape(3, 4),
    "step": torch.tensor(7),
    "state": torch.arange(5, dtype=torch.uint8),
}
FACTS = {"matrix": [[99.5], [98.25, 97.0]], "serial": 3, "training": True}


def same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return actual.keys() == expected.keys() and all(torch.equal(actual[name], expected[name]) for name in expected)


def folder_with(tmp_path: Path, count: int) -> CheckpointFolder:
    folder = CheckpointFolder(tmp_path / "checkpoint", "abc")
    for number in range(1, count + 1):
        folder.write(number, {"value": torch.tensor(float(number))}, {"serial": number})
    return folder


def fail(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def flip_bit(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 4
    path.write_bytes(bytes(content))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_tensors(tmp_path / "file.safetensors", TENSORS, FACTS)
    actual = read_tensors(tmp_path / "file.safetensors")
    assert same(actual.tensors, TENSORS)
    assert actual.facts == FACTS


def test_views_and_parameters_can_be_written(tmp_path: Path) -> None:
    weights = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    write_tensors(tmp_path / "file.safetensors", {"turned": weights.T}, {})
    assert torch.equal(read_tensors(tmp_path / "file.safetensors").tensors["turned"], weights.detach().T)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "file.txt"
    write_atomically(path, "old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(
        MetaReplayError, match=r"file\.txt: No space left on device; what was stored before is untouched"
    ):
        write_atomically(path, "new and longer")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]  # no temporary file stays


def test_a_crash_in_the_middle_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "file.txt"
    write_atomically(path, "old")
    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new and longer")
    assert path.read_text() == "old"


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a" / "b" / "file.txt", "text")
    assert (tmp_path / "a" / "b" / "file.txt").read_text() == "text"


def test_a_file_in_the_place_of_a_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("I am a file")
    with pytest.raises(MetaReplayError, match="cannot write"):
        write_atomically(tmp_path / "a" / "file.txt", "text")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.99])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    path = tmp_path / "file.safetensors"
    write_tensors(path, TENSORS, FACTS)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(CheckpointError, match=r"file\.safetensors is truncated or not a checkpoint"):
        read_tensors(path)


def test_every_flipped_bit_in_the_numbers_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    write_tensors(path, TENSORS, FACTS)
    size, numbers = path.stat().st_size, sum(tensor.numel() * tensor.element_size() for tensor in TENSORS.values())
    for position in range(size - numbers, size):
        flip_bit(path, position)
        with pytest.raises(CheckpointError, match="damaged: its checksum does not match"):
            read_tensors(path)
        flip_bit(path, position)
    assert same(read_tensors(path).tensors, TENSORS)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    path.write_bytes(save({"a": torch.ones(2)}))
    with pytest.raises(CheckpointError, match="was not written by this version of metareplay"):
        read_tensors(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        read_tensors(tmp_path / "nothing.safetensors")


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_at_most_two_are_kept(tmp_path: Path, count: int) -> None:
    folder_with(tmp_path, count)
    expected = [f"step-{number:09d}.safetensors" for number in range(max(1, count - 1), count + 1)]
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == expected


def test_one_that_a_killed_process_left_is_dropped(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "print")
    for number in (1, 2, 3):
        write_tensors(tmp_path / f"step-{number:09d}.safetensors", {}, {"fingerprint": "print"})
    folder.drop_old()
    assert [path.name for path in folder._files()] == ["step-000000002.safetensors", "step-000000003.safetensors"]


def test_the_newest_is_read(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, 3)
    actual = folder.last_good()
    assert actual is not None
    assert (actual.facts["serial"], float(actual.tensors["value"])) == (3, 3.0)
    assert folder.problems == []


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    assert folder_with(tmp_path, 0).last_good() is None


@pytest.mark.parametrize("damage", ["truncated", "flipped", "foreign", "empty"])
def test_the_previous_good_one_is_used_and_the_problem_reported(tmp_path: Path, damage: str) -> None:
    folder = folder_with(tmp_path, 3)
    newest = tmp_path / "checkpoint" / "step-000000003.safetensors"
    if damage == "flipped":
        flip_bit(newest, newest.stat().st_size - 1)
    else:
        newest.write_bytes(
            {"truncated": newest.read_bytes()[:-2], "foreign": save({"a": torch.ones(2)}), "empty": b""}[damage]
        )
    actual = folder.last_good()
    assert actual is not None
    assert float(actual.tensors["value"]) == 2.0
    assert len(folder.problems) == 1
    assert newest.name in folder.problems[0]


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    folder_with(tmp_path, 3)
    with pytest.raises(CheckpointError, match=r"no usable checkpoint: .*another configuration.*--out"):
        CheckpointFolder(tmp_path / "checkpoint", "xyz").last_good()


def test_all_damaged_is_an_error_that_names_them_all(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, 3)
    for path in (tmp_path / "checkpoint").iterdir():
        path.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"step-000000003.*step-000000002"):
        folder.last_good()


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, 1)
    notes = [tmp_path / "checkpoint" / name for name in ("notes.txt", "step-1.safetensors", "step-best.safetensors")]
    for note in notes:
        note.write_text("mine")
    for number in range(2, 6):
        folder.write(number, {"value": torch.tensor(0.0)}, {})
    assert all(note.read_text() == "mine" for note in notes)
    assert folder.last_good() is not None


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_with(tmp_path, 2)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(MetaReplayError, match="No space left on device"):
        folder.write(3, {"value": torch.tensor(3.0)}, {})
    actual = folder.last_good()
    assert actual is not None
    assert float(actual.tensors["value"]) == 2.0


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    write_tensors(path, {"weights": torch.arange(4.0)}, FACTS)
    content = path.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1
        path.write_bytes(bytes(damaged))
        with pytest.raises(CheckpointError):
            read_tensors(path)
