"""One writer for a folder: never two, never through a link, nothing left behind."""

import multiprocessing
import os
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import pytest

from metareplay.errors import ConfigError, MetaReplayError
from metareplay.locks import LOCK, only_writer, remove_abandoned_lock

SPAWN = multiprocessing.get_context("fork")


def take_turns(folder: Path, rounds: int, inside: "Synchronized[int]", overlaps: "Synchronized[int]") -> None:
    for _ in range(rounds):
        with only_writer(folder, wait=60):
            inside.value += 1
            overlaps.value += inside.value != 1
            inside.value -= 1


def test_writers_never_overlap_although_each_removes_its_lock(tmp_path: Path) -> None:
    inside, overlaps = SPAWN.Value("i", 0, lock=False), SPAWN.Value("i", 0, lock=False)
    workers = [SPAWN.Process(target=take_turns, args=(tmp_path, 150, inside, overlaps)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert overlaps.value == 0
    assert list(tmp_path.iterdir()) == []


def hold(folder: Path, ready: Path) -> None:
    with only_writer(folder):
        ready.touch()
        time.sleep(60)


def test_a_killed_writers_lock_is_free(tmp_path: Path) -> None:
    worker = SPAWN.Process(target=hold, args=(tmp_path / "run", tmp_path / "ready"))
    worker.start()
    while not (tmp_path / "ready").exists():
        time.sleep(0.01)
    with pytest.raises(ConfigError, match="another process is writing to"), only_writer(tmp_path / "run", wait=0.03):
        pass
    worker.kill()
    worker.join()
    with only_writer(tmp_path / "run"):
        pass
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "fifo"])
def test_a_planted_lock_is_refused_and_left_as_it_is(kind: str, tmp_path: Path) -> None:
    target, lock = tmp_path / "precious.txt", tmp_path / "run" / LOCK
    lock.parent.mkdir()
    if kind == "folder":
        lock.mkdir()
    elif kind == "fifo":
        os.mkfifo(lock)
    else:
        lock.symlink_to(target)
    if kind == "link":
        target.write_text("mine")
    with (
        pytest.raises(ConfigError, match="is not a lock but a link, a folder or a device; remove it"),
        only_writer(lock.parent),
    ):
        pass
    assert target.exists() == (kind == "link")
    assert kind != "link" or target.read_text() == "mine"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MetaReplayError, match="cannot write to"), only_writer(tmp_path / "file" / "run"):
        pass


def test_the_lock_of_a_killed_process_is_removed_and_that_of_another_kept(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    remove_abandoned_lock(tmp_path)
    assert list(tmp_path.iterdir()) == []
    remove_abandoned_lock(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with only_writer(tmp_path):
        remove_abandoned_lock(tmp_path)
        assert (tmp_path / LOCK).exists()
