"""Files that are written completely or not at all."""

import errno
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from metareplay.errors import MetaReplayError

try:
    import fcntl
except ImportError:  # this system has no such locks
    fcntl = None  # type: ignore[assignment]

Content = bytes | str | Iterable[bytes | memoryview]


def write_atomically(path: Path, content: Content) -> Path:
    """Write a file in one step, even if interrupted: readers see the old content or the new, never a part of it."""
    write_together({path: content})
    return path


def write_together(contents: Mapping[Path, Content]) -> None:
    """Write files of one folder, each in one step; all are on the disk before the first takes its place."""
    temporaries: dict[Path, _Temporary] = {}
    path = next(iter(contents))
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(path)
            temporaries[path] = _temporary(path)
            _fill(temporaries[path].handle, content)
            os.chmod(temporaries[path].name, 0o666 & ~_umask())
        for path in contents:
            os.replace(temporaries[path].name, path)
            os.close(temporaries.pop(path).lock)
        for folder in {path.parent for path in contents}:
            sync_folder(folder)
    except OSError as error:
        raise MetaReplayError(
            f"cannot write {path}: {error.strerror or error}; what was stored before is untouched"
        ) from error
    finally:
        for temporary in temporaries.values():
            with suppress(OSError):
                os.unlink(temporary.name)
            os.close(temporary.lock)


class _Temporary(NamedTuple):
    """A file that will take another's place."""

    name: str
    handle: int
    lock: int
    """The same file, held open and locked until then: whoever finds it unlocked knows that its writer was killed."""


def _temporary(path: Path) -> _Temporary:
    """A new file next to a path."""
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        with suppress(OSError):  # some file systems have no locks
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.lexists(name):
            return _Temporary(name, handle, os.dup(handle))
        os.close(handle)  # it was taken for abandoned before it was locked


def _remove_abandoned(path: Path) -> None:
    """Remove the temporary files of writers of this path that were killed; those of others at work are locked."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}\.tmp")
    with suppress(OSError):
        names = [name for name in os.listdir(path.parent) if pattern.fullmatch(name)] if fcntl is not None else []
        for name in names:
            with suppress(OSError):
                handle = os.open(path.parent / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(path.parent / name)
                finally:
                    os.close(handle)


def real_path(path: Path) -> Path:
    """The absolute path without links. Circular links stay as they are: whoever opens them gets an ``OSError``.

    ``Path.resolve`` raises errors of other kinds there, so that nothing else in the package calls it.
    """
    return Path(os.path.realpath(path))


def write_answers(path: Path, content: Content) -> None:
    """Write to the file that a user named: into a device or a FIFO, through a link, and else in one step."""
    target = real_path(path) if path.is_symlink() else path
    if target.is_symlink():
        raise MetaReplayError(f"cannot write {path}: it is a circular link; name another file")
    around = {str(folder) for place in (path.absolute(), target) for folder in place.parents}
    device = around & {"/dev", "/proc"} and "/dev/shm" not in around
    if (target.is_file() or not target.exists()) and not device:
        write_atomically(target, content)
        return
    try:
        with path.open("wb") as file:
            file.writelines(_parts(content))
    except OSError as error:
        raise MetaReplayError(f"cannot write {path}: {error.strerror or error}") from error


def refuse_waiting(path: Path) -> None:
    """Refuse a FIFO or a device in a file's place, as an OSError: reading it might never end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is a FIFO or a device, not a file", str(path))


def refuse_special(path: Path) -> None:
    """Refuse to replace a link, a device or a FIFO by a new file."""
    if os.path.lexists(path) and (path.is_symlink() or not (path.is_file() or path.is_dir())):
        raise MetaReplayError(f"{path} is a link, a device or a FIFO, and is not replaced; name a file")


def _parts(content: Content) -> Iterable[bytes | memoryview]:
    if isinstance(content, str | bytes):
        # data may hold an incomplete character (a lone surrogate), which no encoding has
        return (content.encode("utf-8", "replace") if isinstance(content, str) else content,)
    return content


def _fill(handle: int, content: Content) -> None:
    """Write to a new file, and wait until it is on the disk."""
    with os.fdopen(handle, "wb") as file:
        file.writelines(_parts(content))
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until renames in a folder are on the disk; some file systems cannot."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_left_overs(folder: Path, names: Iterable[str] = ("*",)) -> int:
    """Remove temporary files of writers that were killed; returns their bytes. Only for the folder's one writer."""
    freed = 0
    for name in names:
        for path in folder.glob(f".{name}.*.tmp"):
            with suppress(OSError):
                size = path.lstat().st_size
                path.unlink()
                freed += size
    return freed


def _umask() -> int:
    """The process's file-creation mask, which temporary files ignore."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
