"""A command in a forked process: everything is imported already, so that a case takes as long as its work."""

import faulthandler
import gc
import importlib
import io
import os
import pkgutil
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

CRASHED = 70
"""The exit code of a process that ended by an exception that nobody caught."""
LATE = (
    "datasets", "pyarrow.parquet", "PIL.PngImagePlugin", "matplotlib.backends.backend_svg", "sklearn.linear_model",
    "torch._dynamo", "sympy", "torch.utils._sympy.functions", "rich.progress", "rich.table", "encodings.utf_16_be",
)  # fmt: skip
"""What is otherwise imported in the middle of a command."""
LATE_OF_EXPORTS = ("onnx.reference", "onnxscript", "torch.export", "torch.onnx._internal.exporter._core")
"""The same for ``metareplay export``: seconds, which a short campaign does not need."""
UNWANTED = ("metareplay.__main__", "metareplay.integrations")


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    """The exit code; below 0, the signal that ended it."""
    out: str
    err: str
    hung: bool = False
    """It had to be killed."""
    asked: bool = False
    """It was asked to stop, since it took long."""


class Limits(NamedTuple):
    """Of one case."""

    seconds: float = 30.0
    ask_after: float | None = None
    """Seconds after which it is asked to stop, by SIGTERM."""
    memory: int | None = None
    """Bytes beyond what the process begins with."""


USUAL = Limits()


def warm_up(*, exports: bool = True) -> None:
    """Import everything once."""
    import metareplay

    for module in pkgutil.walk_packages(metareplay.__path__, "metareplay."):
        if not module.name.startswith(UNWANTED):
            with suppress(ImportError):
                importlib.import_module(module.name)
    for name in (*LATE, *(LATE_OF_EXPORTS if exports else ())):
        with suppress(ImportError):
            importlib.import_module(name)
    from metareplay.learner.recipe_book import all_recipes

    all_recipes()
    gc.collect()
    gc.freeze()  # forked processes need not look at all this, which would copy it


def draw_nothing() -> None:
    """Figures are made but not drawn, which takes most of a report's time."""
    from matplotlib.figure import Figure

    def savefig(figure: Figure, file: IO[Any], **options: Any) -> None:
        text = '<svg viewBox="0 0 1 1"></svg>'
        file.write(text if options.get("format") == "svg" and isinstance(file, io.TextIOBase) else text.encode())

    Figure.savefig = savefig  # type: ignore[method-assign, assignment]


def forked(
    work: Callable[[], None],
    scratch: Path,
    limits: Limits = USUAL,
    *,
    stdin: Path | None = None,
) -> Ended:
    """Do something in a forked process; its output goes to files in ``scratch``."""
    out, err = scratch / "stdout", scratch / "stderr"
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process == 0:
        _child(work, out, err, limits, stdin)
    hung, asked, code = _awaited(process, limits)
    if code < 0:
        wait_for_group(process)  # what a killed command had started ends by itself
    text = [path.read_text(encoding="utf-8", errors="replace") if path.exists() else "" for path in (out, err)]
    return Ended(code, text[0], text[1], hung, asked)


def _child(work: Callable[[], None], out: Path, err: Path, limits: Limits, stdin: Path | None) -> None:
    code = CRASHED
    try:
        os.setsid()
        for number, path, flags in (
            (0, stdin or Path(os.devnull), os.O_RDONLY),
            (1, out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            (2, err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        ):
            handle = os.open(path, flags, 0o600)
            os.dup2(handle, number)
            os.close(handle)
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
        faulthandler.enable(2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limits.memory is not None:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + limits.memory
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _awaited(process: int, limits: Limits) -> tuple[bool, bool, int]:
    """Wait for the process's end; returns whether it hung, whether it was asked to stop, and its exit code."""
    handle, asked, hung = os.pidfd_open(process), False, False
    begin = time.monotonic()
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if limits.ask_after is not None and not poll.poll(1000 * limits.ask_after):
            asked = True
            os.kill(process, signal.SIGTERM)
        if not poll.poll(max(1.0, 1000 * (begin + limits.seconds - time.monotonic()))):
            hung = not _still_works(process, poll, limits.seconds)
        if hung:
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return hung, asked, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    finally:
        os.close(handle)


def _still_works(process: int, poll: select.poll, seconds: float) -> bool:
    """Whether a late process ends after all: other processes may have had the processor."""
    idle = 0
    while not poll.poll(500):
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
            used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            idle = 0 if fields[0] in "RD" else idle + 1
            if used > seconds or idle > 4:
                return False
    return True


def wait_for_group(process: int, seconds: float = 60.0) -> bool:
    """Wait until the processes that a killed one left behind have ended."""
    deadline = time.monotonic() + seconds
    while _alive(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _alive(group: int) -> bool:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            fields = path.read_text().rsplit(")", 1)[1].split()
            if int(fields[2]) == group and fields[0] not in "ZX":
                return True
    return False


def command(words: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> Callable[[], None]:
    """What ``metareplay`` does with these words in this folder."""

    def work() -> None:
        from metareplay.cli.main import main

        os.chdir(folder)
        tempfile.tempdir = str(folder.parent)  # where the last line of defence writes
        os.environ.update({"COLUMNS": "300", "NO_COLOR": "1", "METAREPLAY_OFFLINE": "1", **(environment or {})})
        sys.argv = ["metareplay", *words]
        main()

    return work
