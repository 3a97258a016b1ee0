"""Errors that nobody expected: one sentence, the traceback in a file."""

import errno
import re
import tempfile
from pathlib import Path

import pytest

from metareplay import faults
from metareplay.faults import fault_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(faults, "_written", 0)
    return tmp_path


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_a_bug_is_one_sentence_and_its_traceback_a_file(folder: Path) -> None:
    fault = fault_of(raised(KeyError("x")))
    path = Path(re.search(r"the traceback in (.*)", fault.sentence)[1])  # type: ignore[index]
    assert fault.code == 1
    assert "KeyError: 'x'" in fault.sentence
    assert "\n" not in fault.sentence
    assert path.parent == folder
    assert fault.number in path.name
    assert "in raised" in path.read_text()
    assert "raise error" in path.read_text()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "a" * 5000),
            "cannot be read or written: File name too long",
        ),
        (OSError(errno.EROFS, "Read-only file system", "/x"), "/x cannot be read or written: Read-only file system"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ..."), "not enough memory"),
        (ValueError("embedded null byte"), "zero byte"),
    ],
)
def test_files_and_memory_are_the_users_to_mend(error: Exception, words: str) -> None:
    fault = fault_of(raised(error))
    assert fault.code == 2
    assert words in fault.sentence
    assert len(fault.sentence) < 500


def test_a_traceback_can_be_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("METAREPLAY_TRACEBACK", "1")
    assert "traceback above" in fault_of(raised(RecursionError())).sentence
    assert "Traceback" in capsys.readouterr().err
    assert not list(folder.iterdir())


def test_files_do_not_grow_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "MOST_FILES", 2)
    sentences = [fault_of(raised(ZeroDivisionError())).sentence for _ in range(4)]
    assert len(list(folder.iterdir())) == 2
    assert "METAREPLAY_TRACEBACK=1" in sentences[3]


def test_without_a_folder_for_files_there_is_still_a_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "none"))
    assert "METAREPLAY_TRACEBACK=1" in fault_of(raised(ZeroDivisionError())).sentence
