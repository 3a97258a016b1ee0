"""Where answers go: devices, FIFOs and links are written through or refused, never replaced."""

import os
import stat
import threading
from pathlib import Path

import pytest

from metareplay.errors import MetaReplayError
from metareplay.files import refuse_special, write_answers


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_answers(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_a_fifo_is_written_into(tmp_path: Path) -> None:
    fifo, read = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reader.start()
    write_answers(fifo, b"answers")
    reader.join()
    assert read == [b"answers"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_device_stays_a_device() -> None:
    write_answers(Path("/dev/null"), b"answers")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_plain_file_is_replaced_and_a_folder_refused(tmp_path: Path) -> None:
    write_answers(tmp_path / "a.csv", b"1")
    write_answers(tmp_path / "a.csv", b"2")
    assert (tmp_path / "a.csv").read_bytes() == b"2"
    with pytest.raises(MetaReplayError, match="cannot write"):
        write_answers(tmp_path, b"3")


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "device"])
def test_what_is_not_replaced(kind: str, tmp_path: Path) -> None:
    path = Path("/dev/null") if kind == "device" else tmp_path / "out"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind != "device":
        path.symlink_to(tmp_path if kind == "link" else tmp_path / "none")
    with pytest.raises(MetaReplayError, match="is not replaced; name a file"):
        refuse_special(path)
    refuse_special(tmp_path)
    refuse_special(tmp_path / "new.html")
