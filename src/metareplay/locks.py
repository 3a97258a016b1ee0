"""One writer for a folder: a lock that ends with its process and leaves nothing behind."""

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from metareplay.errors import ConfigError, MetaReplayError

try:
    import fcntl
except ImportError:  # this system has no such locks
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
"""The file that one process holds while it writes to a folder."""
PAUSE = 0.01
OPEN = (
    os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
)


@contextmanager
def only_writer(
    folder: Path, *, wait: float = 0.0, advice: str = "wait for it, stop it, or choose another --out"
) -> Iterator[None]:
    """Lock a folder, created if necessary; a second writer waits this many seconds, and is then refused."""
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = _acquired(path, time.monotonic() + wait)
    except OSError as error:
        raise MetaReplayError(f"cannot write to {folder}: {error.strerror or error}") from error
    if handle is None:
        raise ConfigError(f"another process is writing to {folder}; {advice}")
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # still held: whoever has it open will notice that it is no longer the folder's
        os.close(handle)


def remove_abandoned_lock(folder: Path) -> None:
    """Remove the lock of a process that was killed, if it was the last one to write to a folder."""
    if (folder / LOCK).exists():
        with suppress(MetaReplayError), only_writer(folder):
            pass


def _acquired(path: Path, deadline: float) -> int | None:
    """An open and locked handle of the folder's lock file; None if another process holds it for too long."""
    while True:
        handle = _opened(path)
        try:
            if fcntl is None:
                return handle
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _in_place(path, handle):
                return handle
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(handle)
                return None
            time.sleep(PAUSE)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _opened(path: Path) -> int:
    """Open the lock file without following a link, and without changing what it holds."""
    try:
        handle = os.open(path, OPEN, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise ConfigError(f"{path} is not a lock but a link, a folder or a device; remove it") from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ConfigError(f"{path} is not a lock but a link, a folder or a device; remove it")
    return handle


def _in_place(path: Path, handle: int) -> bool:
    """Whether the locked file is still the folder's: the holder before may have removed it."""
    try:
        now = os.lstat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(now, os.fstat(handle))
