"""Count the file-system boundaries of a process, and let it be killed, or its disk be full, at the n-th.

Only the standard library: this is loaded into processes that the campaign did not fork itself.
"""

import builtins
import errno
import io
import json
import os
import signal
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "TORTURE_FAULT"
KILL, TORN, FULL, COUNT = "kill", "torn", "full", "count"
ACTIONS = (KILL, TORN, FULL, COUNT)
EVENTS = {"open": 0, "os.mkdir": 0, "os.rename": 1, "os.link": 1, "os.remove": 0, "os.rmdir": 0, "os.truncate": 0}
"""Audit events, and which argument is the path that changes."""
TAKES_SPACE = ("open", "os.mkdir", "os.link", "write")


class Fault(NamedTuple):
    """What shall happen in a process."""

    root: str
    """Only changes below this folder count."""
    at: int = 0
    """The boundary, from 1; 0: none."""
    action: str = COUNT
    log: str = ""
    """A file to which every boundary is written."""
    only: str = ""
    """Only in a process with this word among its arguments."""

    def text(self) -> str:
        """For the environment of a process."""
        return json.dumps(self)


class _Counter:
    """Counts boundaries, and acts at the wanted one."""

    def __init__(self, fault: Fault) -> None:
        self.fault, self.seen, self.busy = fault, 0, False
        self.log = os.open(fault.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if fault.log else -1

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Of every audited operation."""
        if event not in EVENTS or self.busy or (event == "open" and not _writes(arguments)):
            return
        self.busy = True  # what is done here does not count
        try:
            path = _path(event, arguments)
            inside = path.startswith(self.fault.root)
            source = str(arguments[0]) if event == "os.rename" else ""
        finally:
            self.busy = False
        if inside:
            self.note(event, path, source)

    def note(self, event: str, path: str, source: str = "") -> bool:
        """Count a boundary; the process may end here. True for a write of which a half shall be written."""
        self.seen += 1
        if self.log >= 0:
            self.busy = True
            try:
                os.write(self.log, (json.dumps([event, path, _content(path, source)]) + "\n").encode())
            finally:
                self.busy = False
        if self.fault.action == FULL and self.seen >= self.fault.at and event in TAKES_SPACE:
            if event == "write" and self.seen == self.fault.at:
                return True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if self.seen == self.fault.at and self.fault.action in (KILL, TORN):
            if self.fault.action == TORN and event == "write":
                return True
            os.kill(os.getpid(), signal.SIGKILL)
        return False


def _writes(arguments: tuple[Any, ...]) -> bool:
    """Whether a file is opened to be changed; ones that are opened by number were opened before."""
    flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) and not isinstance(arguments[0], int)


def _path(event: str, arguments: tuple[Any, ...]) -> str:
    """The absolute path that an operation changes; it may be relative to an open folder."""
    place = EVENTS[event]
    name = os.fsdecode(arguments[place])
    folder = arguments[place + 1] if event in ("os.remove", "os.rmdir") and len(arguments) > place + 1 else -1
    if event == "os.mkdir" and len(arguments) > 2:
        folder = arguments[2]
    start = os.readlink(f"/proc/self/fd/{folder}") if isinstance(folder, int) and folder >= 0 else os.getcwd()
    return os.path.abspath(os.path.join(start, name))


def _content(path: str, source: str) -> str:
    """The checksum of a model that takes its place, so that each one that ever existed is known."""
    if source and os.path.basename(path) == "model.safetensors":
        return sha256(Path(source).read_bytes()).hexdigest()
    return ""


def install(fault: Fault) -> None:
    """From now on, in this process; there is no way back."""
    counter = _Counter(fault)
    sys.addaudithook(counter.hook)
    real_open, real_sync = io.open, os.fsync

    class CountedFile(io.FileIO):
        """A file whose writes are boundaries."""

        place = ""

        def write(self, data: Any) -> int:
            if not counter.note("write", self.place):
                return super().write(data)
            super().write(bytes(data)[: len(data) // 2])
            if fault.action == FULL:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.place)
            os.kill(os.getpid(), signal.SIGKILL)
            return 0

    def counted_open(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: Any = None,
        errors: Any = None,
        newline: Any = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        plain = buffering == -1 and opener is None and set(mode) & set("wax") and "+" not in mode
        place = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else os.path.abspath(os.fsdecode(file))
        if not plain or not place.startswith(fault.root):
            return real_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = CountedFile(file, "".join(set(mode) & set("wax")), closefd)
        raw.place = place
        buffer = io.BufferedWriter(raw)
        return buffer if "b" in mode else io.TextIOWrapper(buffer, encoding, errors, newline)

    def counted_sync(file: Any) -> None:
        number = file if isinstance(file, int) else file.fileno()
        place = os.readlink(f"/proc/self/fd/{number}")
        if place.startswith(fault.root):
            counter.note("fsync", place)
        real_sync(number)

    io.open = builtins.open = counted_open
    os.fsync = counted_sync  # type: ignore[assignment]


def install_from_environment() -> None:
    """In a process that a tested command started."""
    fault = Fault(*json.loads(os.environ[VARIABLE]))
    if any(fault.only in word for word in sys.orig_argv):
        install(fault)
