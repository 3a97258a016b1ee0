"""Where answers go: devices, FIFOs and links are written through or refused, never replaced."""

import fcntl
import os
import stat
import threading
from pathlib import Path

import pytest

from metareplay.errors import MetaReplayError
from metareplay.files import real_path, refuse_special, write_answers, write_atomically


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_answers(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_links_in_a_circle_are_neither_replaced_nor_a_surprise(tmp_path: Path) -> None:
    circle = tmp_path / "circle.csv"
    circle.symlink_to(circle)
    assert real_path(circle) == real_path(tmp_path) / "circle.csv"
    with pytest.raises(MetaReplayError, match="it is a circular link"):
        write_answers(circle, "x")
    assert circle.is_symlink()


def test_half_a_character_is_replaced(tmp_path: Path) -> None:
    """JSON can name one that no encoding has; a page that shows it is still written."""
    write_atomically(tmp_path / "page.html", "task \ud800 of two")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == "task ? of two"


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


def test_temporary_files_of_killed_writers_are_removed_and_those_of_others_kept(tmp_path: Path) -> None:
    abandoned, other, mine = (tmp_path / f".page.{name}.tmp" for name in ("abcd_123", "working1", "notes"))
    for path in (abandoned, other, mine):
        path.write_text("a part")
    with other.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write_atomically(tmp_path / "page", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((other.name, mine.name, "page"))
    assert (tmp_path / "page").read_text() == "whole"


def test_many_writers_of_one_file_never_remove_each_other(tmp_path: Path) -> None:
    problems: list[Exception] = []

    def write(text: str) -> None:
        for _ in range(40):
            try:
                write_atomically(tmp_path / "page", text * 1000)
            except MetaReplayError as error:
                problems.append(error)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert [path.name for path in tmp_path.iterdir()] == ["page"]
