"""What engines have in common: jobs, which are commands that can be repeated, and what a job may use."""

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple, Protocol

from metareplay.errors import ConfigError

PARENT = "METAREPLAY_PARENT"
"""The environment variable that names the process a job belongs to: when that ends, the job saves its state and ends.
A job without it stands alone."""


class Job(NamedTuple):
    """A command that does what remains to be done in its folder; after a kill the same command continues."""

    name: str
    command: tuple[str, ...]
    folder: Path
    threads: int = 1

    def environment(self, *, parent: bool) -> dict[str, str]:
        """For its process: whether it belongs to the one that starts it."""
        inherited = {key: value for key, value in os.environ.items() if key != PARENT}
        own = {"OMP_NUM_THREADS": str(self.threads)}
        return {**inherited, **own, **({PARENT: str(os.getpid())} if parent else {})}

    def line(self) -> str:
        """For a shell, in any folder."""
        kept = [f"{name}={shlex.quote(os.environ[name])}" for name in ("PYTHONPATH",) if os.environ.get(name)]
        return " ".join([f"OMP_NUM_THREADS={self.threads}", *kept, shlex.join(self.command)])


def reason_of(code: int, text: str) -> str:
    """Why a process failed, by its exit code and what it wrote to standard error."""
    if code < 0:  # what it wrote before is not the reason
        return f"its process was killed (signal {-code})"
    lines = text.strip().splitlines()
    return lines[-1] if lines else f"its process ended with code {code}"


Report = Callable[[AbstractSet[int], AbstractSet[int]], None]
"""Told now and then which jobs run, and which have failed."""


class Engine(Protocol):
    """Executes jobs."""

    waits: bool
    """Whether ``run`` returns when all jobs have ended. Otherwise they are started by others."""
    queues: bool
    """Whether it may be given all jobs at once: others decide how many of them run."""

    def threads(self, jobs: int) -> int:
        """How many threads a job may use if this many run at once."""
        ...

    def run(
        self, jobs: Sequence[Job], *, at_once: int, out: Path, report: Report, should_stop: Callable[[], bool]
    ) -> dict[int, str]:
        """Execute the jobs, this many at once; returns the error messages of those that failed. When asked to stop,
        running jobs save their state and end. ``out`` is the folder for the engine's own files."""
        ...


class Resources(NamedTuple):
    """What one job may use; None: not specified."""

    cpus: float | None = None
    gpus: float | None = None
    memory: int | None = None
    """MiB."""
    time: str | None = None
    """Of the clock, as Slurm writes it: minutes, h:mm:ss or d-hh."""


ANYTHING = Resources()


def processors_of(resources: Resources) -> int:
    """Whole processors of one job, at least one."""
    return max(1, int(resources.cpus or 1))


_UNITS = {"": 1, "M": 1, "G": 1024, "T": 1024**2}


def parse_resources(text: str | None) -> Resources:
    """``cpus=2,gpus=1,memory=4G,time=2:00:00``, each at most once."""
    given: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in (text or "").split(","))):
        key, equals, value = part.partition("=")
        if not equals or key not in Resources._fields or key in given:
            raise ConfigError(
                f"--resources {part!r} is not understood; write {', '.join(Resources._fields)}, each at most once, "
                "such as cpus=2,memory=4G"
            )
        given[key] = value
    return Resources(
        _number("cpus", given.get("cpus")),
        _number("gpus", given.get("gpus")),
        _memory(given.get("memory")),
        _time(given.get("time")),
    )


def _number(key: str, text: str | None) -> float | None:
    if text is None:
        return None
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise ConfigError(f"--resources {key}={text}: give a number, such as {key}=1")
    if key == "cpus" and float(text) == 0:
        raise ConfigError("--resources cpus=0: a run needs a processor; give a number above 0, such as cpus=1")
    return float(text)


def _memory(text: str | None) -> int | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)([MGT]?)", text)
    if match is None:
        raise ConfigError(f"--resources memory={text}: give megabytes, or gigabytes as in memory=4G")
    if int(match[1]) == 0:
        raise ConfigError(f"--resources memory={text}: a run needs memory; give a number above 0, such as memory=4G")
    return int(match[1]) * _UNITS[match[2]]


def _time(text: str | None) -> str | None:
    if text is None:
        return None
    if not re.fullmatch(r"(\d+-)?\d+(:\d\d){0,2}", text):
        raise ConfigError(f"--resources time={text}: give minutes or hours:minutes:seconds, such as time=2:00:00")
    if re.fullmatch(r"\d+:\d\d", text):
        raise ConfigError(
            f"--resources time={text}: Slurm takes this for minutes and seconds; write hours:minutes:seconds, such as "
            f"time={text}:00, or minutes"
        )
    return text


def seconds_of(time: str) -> int:
    """The seconds of a time that was parsed: minutes, h:mm:ss, or days before a hyphen, then h, h:mm or h:mm:ss."""
    days, hyphen, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if not hyphen and len(parts) == 1:
        return 60 * parts[0]
    return 86400 * int(days or 0) + sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))


def mapping_of(resources: Resources) -> Mapping[str, float | int | str]:
    """What was specified."""
    return {key: value for key, value in resources._asdict().items() if value is not None}
