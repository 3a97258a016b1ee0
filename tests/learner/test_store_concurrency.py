"""Any number of readers, one writer at a time: the folder is never unloadable, whoever writes or is killed."""

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch

from metareplay.learner.generations import read_generation, read_history, write_generation, writing
from metareplay.learner.history import HistoryEntry

FORK = multiprocessing.get_context("fork")
FACTS = {"problem": "classification", "scenario": "class", "input_shape": [2], "inputs": {}, "heads": [[0, 2]]}


def save_many(folder: Path, name: str, rounds: int) -> None:
    for number in range(rounds):
        tensors = {"model.x": torch.full((50,), float(number)), "model.y": torch.full((3,), float(number))}
        facts = {**FACTS, "config": {"method": name}, "tasks": [{"name": f"{name} {number}", "classes": ["a", "b"]}]}
        with writing(folder):
            write_generation(folder, tensors, facts, entry=HistoryEntry(verb=name), keep_previous=number % 5 == 0)


def read_many(folder: Path, stop: Path) -> None:
    newest = 0
    while not stop.exists():
        facts, tensors = read_generation(folder)
        number = float(facts["tasks"][0]["name"].split()[-1])
        assert tensors["model.x"].eq(number).all()
        assert tensors["model.y"].eq(number).all()
        assert facts["generation"] >= newest, "a reader never goes back"
        newest = facts["generation"]


def check_together(folder: Path, stop: Path, rounds: int) -> None:
    save_many(folder, "first", 1)
    savers = [FORK.Process(target=save_many, args=(folder, f"saver-{index}", rounds)) for index in range(2)]
    readers = [FORK.Process(target=read_many, args=(folder, stop)) for _ in range(2)]
    for process in (*readers, *savers):
        process.start()
    for process in savers:
        process.join()
    stop.touch()
    for process in readers:
        process.join()
    assert [process.exitcode for process in (*savers, *readers)] == [0] * 4
    assert read_generation(folder).facts["generation"] == 1 + 2 * rounds
    assert [entry.generation for entry in read_history(folder)] == list(range(1, 2 + 2 * rounds))
    assert {path.name for path in folder.iterdir()} == {
        "model.safetensors", "config.json", "README.md", "history.json", "versions"
    }  # fmt: skip


def test_savers_and_readers_side_by_side(tmp_path: Path) -> None:
    check_together(tmp_path / "model", tmp_path / "stop", rounds=25)


@pytest.mark.slow
def test_many_savers_and_readers_side_by_side(tmp_path: Path) -> None:
    check_together(tmp_path / "model", tmp_path / "stop", rounds=500)


def check_kills(folder: Path, kills: int) -> None:
    save_many(folder, "first", 1)
    generator = random.Random(0)
    for _ in range(kills):
        before = read_generation(folder).facts["generation"]
        process = FORK.Process(target=save_many, args=(folder, "killed", 10_000))
        process.start()
        time.sleep(0.005 + 0.03 * generator.random())
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert read_generation(folder).facts["generation"] >= before
        history = [entry.generation for entry in read_history(folder)]
        assert history == list(range(1, read_generation(folder).facts["generation"] + 1))
    save_many(folder, "last", 1)  # which cleans up
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_savers_that_are_killed(tmp_path: Path) -> None:
    check_kills(tmp_path / "model", kills=12)


@pytest.mark.slow
def test_many_savers_that_are_killed(tmp_path: Path) -> None:
    check_kills(tmp_path / "model", kills=250)
