"""Files that are written completely or not at all; and where a YAML text is wrong."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from metareplay.errors import ConfigError, MetaReplayError

if TYPE_CHECKING:
    from yaml import YAMLError

try:
    import fcntl
except ImportError:  # this system has no such locks
    fcntl = None  # type: ignore[assignment]


LOCK = ".lock"
"""The file that one process holds while it writes to a folder."""


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Lock a folder: a second process that wants to write there is refused. The lock ends with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(
                    f"another process is writing to {folder}; wait for it, stop it, or choose another --out"
                ) from error
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes | str) -> Path:
    """Write a file in one step, even if interrupted: readers see the old content or the new, never a part of it."""
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise MetaReplayError(
            f"cannot write {path}: {error.strerror or error}; what was stored before is untouched"
        ) from error
    return path


def _umask() -> int:
    """The process's file-creation mask, which temporary files ignore."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def yaml_problem(error: "YAMLError") -> str:
    """What is wrong with a YAML text, and where."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark and problem else str(error)
