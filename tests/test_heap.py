"""Freed memory stays with the process."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from metareplay.heap import CHOSEN_BY_USER, give_back_freed_memory, keep_freed_memory

PAGES = """
import resource, sys
import torch
from metareplay.heap import keep_freed_memory

set = keep_freed_memory() if sys.argv[1] == "keep" else False
for _ in range(30):
    torch.ones(10_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones(10_000_000)
print(int(set), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

HELD = """
import ctypes, resource

import torch
from metareplay.heap import give_back_freed_memory, keep_freed_memory

def resident():
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * resource.getpagesize()

known = keep_freed_memory() and hasattr(ctypes.CDLL(None), "malloc_trim")
pieces = [torch.ones(1_000_000) for _ in range(100)]
pieces = pieces[::2]  # 200 MB in holes
before = resident()
print(int(known), int(give_back_freed_memory()), before - resident(), int(sum(float(piece[-1]) for piece in pieces)))
"""


def printed(script: str, *words: str, **variables: str) -> list[int]:
    """The numbers that a separate process prints."""
    environment = {name: value for name, value in os.environ.items() if name not in CHOSEN_BY_USER} | variables
    found = subprocess.run(
        [sys.executable, "-c", script, *words], env=environment, check=True, capture_output=True, text=True
    )
    return [int(word) for word in found.stdout.split()]


def pages(word: str, **variables: str) -> tuple[int, int]:
    """Whether it was set, and the pages that ten pieces of 40 MB took from the system."""
    known, taken = printed(PAGES, word, **variables)
    return known, taken


@pytest.mark.skipif(sys.platform != "linux", reason="only the GNU C library is asked")
def test_memory_that_was_freed_is_used_again() -> None:
    known, taken = pages("keep")
    if not known:
        pytest.skip("this C library cannot be asked")
    assert taken < 0.1 * pages("as it is")[1]


@pytest.mark.skipif(sys.platform != "linux", reason="only the GNU C library is asked")
def test_what_is_kept_in_holes_is_given_back() -> None:
    known, given, freed, used = printed(HELD)
    if not known:
        pytest.skip("this C library cannot be asked")
    assert given
    assert freed > 150e6
    assert used == 50  # what is still in use is untouched


def test_where_the_size_is_refused_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other two alone would let every larger piece go back to the system."""
    asked = []
    library = SimpleNamespace(mallopt=lambda name, value: asked.append((name, value)) or 0)
    monkeypatch.setattr("ctypes.CDLL", lambda name: library)
    monkeypatch.setattr("sys.platform", "linux")
    for name in CHOSEN_BY_USER:
        monkeypatch.delenv(name, raising=False)
    assert not keep_freed_memory()
    assert [name for name, _ in asked] == [-3, -3]


@pytest.mark.parametrize("name", CHOSEN_BY_USER[:3])
def test_what_a_user_chose_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1048576")
    assert not keep_freed_memory()
    assert not give_back_freed_memory()


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert not keep_freed_memory()
    assert not give_back_freed_memory()
