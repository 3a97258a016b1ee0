"""The last line of defence: an unexpected error, as one sentence, with its traceback in a file."""

import os
import secrets
import sys
import tempfile
import traceback
from typing import NamedTuple

from metareplay.version import __version__

SHOW = "METAREPLAY_TRACEBACK"
"""The environment variable that has tracebacks printed."""
MOST_FILES = 100
"""Tracebacks that one process writes at most: a server may fail often."""
_MEMORY = ("not enough memory", "can't allocate memory", "out of memory", "Unable to allocate")
_written = 0


class Fault(NamedTuple):
    """What is said of an error, and how the command ends."""

    sentence: str
    code: int
    number: str
    """Of this occurrence, so that a report can be matched with a traceback."""


def fault_of(error: BaseException) -> Fault:
    """One sentence for any error: files and memory are for the user to fix (code 2), everything else is our bug (1)."""
    number = secrets.token_hex(4)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else error.filename
        return Fault(f"{_shortened(str(name))} cannot be read or written: {error.strerror}", 2, number)
    kept = _kept(error, number)
    if isinstance(error, MemoryError) or any(words in str(error) for words in _MEMORY):
        advice = "use less data, a smaller network or batch, or a machine with more memory"
        return Fault(f"there is not enough memory; {advice} ({kept})", 2, number)
    if isinstance(error, ValueError) and "null byte" in str(error):
        return Fault("a path contains a zero byte, which no file name can contain; correct it", 2, number)
    text = (str(error).strip().splitlines() or [""])[0]
    what = f"{type(error).__name__}: {_shortened(text)}" if text else type(error).__name__
    return Fault(f"an unexpected error ({what}); please report it as a bug, with {kept}", 1, number)


def _kept(error: BaseException, number: str) -> str:
    """Write the traceback to a file; says where it is."""
    global _written
    text = "".join(traceback.format_exception(error))
    if os.environ.get(SHOW, "").lower() in {"1", "on", "yes", "true"}:
        print(text, file=sys.stderr)
        return "the traceback above"
    if _written >= MOST_FILES:
        return f"the traceback that {SHOW}=1 prints"
    try:
        handle, path = tempfile.mkstemp(prefix=f"metareplay-fault-{number}-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            python = sys.version.split()[0]
            file.write(f"fault {number}, metareplay {__version__}, Python {python}, {sys.platform}\n\n{text}")
    except OSError:
        return f"the traceback that {SHOW}=1 prints"
    _written += 1
    return f"the traceback in {path}"


def _shortened(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:200]}...{text[-60:]}"
