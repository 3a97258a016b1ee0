"""Faults at file-system boundaries: each is counted, and the process ends or the disk is full at the wanted one."""

import json
import signal
from pathlib import Path

import pytest

from torture.faults import COUNT, FULL, KILL, TORN, Fault, install
from torture.processes import Ended, Limits, forked

pytestmark = pytest.mark.skipif(not hasattr(__import__("os"), "pidfd_open"), reason="needs Linux")


def played(folder: Path, fault: Fault) -> Ended:
    def work() -> None:
        from metareplay.files import write_atomically

        install(fault)
        write_atomically(folder / "made" / "file", b"0123456789")
        (folder.parent / "outside").write_text("x")

    return forked(work, folder.parent, Limits(seconds=30))


def test_boundaries_are_counted_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "root"
    folder.mkdir()
    log = tmp_path / "log"
    assert played(folder, Fault(str(folder), 0, COUNT, str(log))).code == 0
    events = [json.loads(line)[0] for line in log.read_text().splitlines()]
    assert events == ["os.mkdir", "open", "write", "fsync", "os.rename", "fsync"]


@pytest.mark.parametrize(("at", "kind", "sizes"), [(3, KILL, [0]), (3, TORN, [5]), (5, KILL, [10]), (6, KILL, [10])])
def test_a_process_is_killed_at_a_boundary(at: int, kind: str, sizes: list[int], tmp_path: Path) -> None:
    folder = tmp_path / "root"
    folder.mkdir()
    assert played(folder, Fault(str(folder), at, kind)).code == -signal.SIGKILL
    assert [path.stat().st_size for path in (folder / "made").iterdir()] == sizes
    assert (folder / "made" / "file").exists() == (at == 6)
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_full_disk_stays_full(at: int, tmp_path: Path) -> None:
    folder = tmp_path / "root"
    folder.mkdir()
    ended = played(folder, Fault(str(folder), at, FULL))
    assert "No space left on device; what was stored before is untouched" in ended.err
    assert not [path for path in folder.rglob("*") if path.is_file()]
