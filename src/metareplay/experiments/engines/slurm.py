"""Jobs as one Slurm array: a script that a user submits, whose elements are the jobs' commands."""

import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import final

from metareplay.errors import ConfigError
from metareplay.experiments.engines.base import ANYTHING, Job, Report, Resources, processors_of, seconds_of
from metareplay.files import real_path, write_atomically

SCRIPT, LOGS = "slurm.sh", "slurm-logs"
WARNING = 120
"""Seconds before the time limit at which an element is asked to save its state."""


@final
class Slurm:
    """Writes the script; ``sbatch`` queues it."""

    waits, queues = False, True

    def __init__(self, resources: Resources = ANYTHING) -> None:
        if resources.cpus is not None and not resources.cpus.is_integer():
            raise ConfigError(f"--resources cpus={resources.cpus}: Slurm gives whole processors; choose an integer")
        if resources.gpus is not None and not resources.gpus.is_integer():
            raise ConfigError(f"--resources gpus={resources.gpus}: Slurm gives whole GPUs; choose an integer")
        if resources.time is not None and seconds_of(resources.time) <= WARNING:
            raise ConfigError(
                f"--resources time={resources.time} is too short: a run is asked to save its state {WARNING // 60} "
                "minutes before the limit; give more, such as time=30 (minutes), or omit it for the cluster's default"
            )
        self.resources = resources

    def threads(self, jobs: int) -> int:
        """As many as an element has processors."""
        return processors_of(self.resources)

    def run(
        self, jobs: Sequence[Job], *, at_once: int, out: Path, report: Report, should_stop: Callable[[], bool]
    ) -> dict[int, str]:
        if jobs:
            text = self.script(jobs, at_once=at_once, out=out)  # may be refused, which leaves nothing
            (out / LOGS).mkdir(parents=True, exist_ok=True)  # sbatch does not make it
            write_atomically(out / SCRIPT, text)
        return {}

    def script(self, jobs: Sequence[Job], *, at_once: int, out: Path) -> str:
        """The array script."""
        limit = f"%{at_once}" if at_once < len(jobs) else ""
        lines = [f"--job-name=metareplay-{_word(out.name)}", f"--array=0-{len(jobs) - 1}{limit}", *self._directives()]
        lines += [f"--output={_log(out)}", "--open-mode=append", "--requeue", f"--signal=B:TERM@{WARNING}"]
        cases = "\n".join(f"  {index}) exec env {job.line()} ;;  # {job.name}" for index, job in enumerate(jobs))
        directives = "\n".join(f"#SBATCH {line}" for line in lines)
        return f"""#!/bin/bash
{directives}
# Every element continues where it was stopped: submit the script again for what a time limit has cut off.
cd {shlex.quote(str(Path.cwd()))} || exit 1
case "$SLURM_ARRAY_TASK_ID" in
{cases}
esac
exit 1  # no such element
"""

    def _directives(self) -> list[str]:
        wanted = self.resources
        lines = [f"--cpus-per-task={math.ceil(wanted.cpus)}"] if wanted.cpus else []
        lines += [f"--gpus-per-task={int(wanted.gpus)}"] if wanted.gpus else []
        lines += [f"--mem={wanted.memory}M"] if wanted.memory else []
        return lines + ([f"--time={wanted.time}"] if wanted.time else [])


def _word(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name) or "runs"


def _log(out: Path) -> str:
    """Where an element's messages go, as sbatch reads it: in quotation marks, because of spaces, and with %% for %."""
    path = str(real_path(out) / LOGS)
    if any(letter in '"\\' or ord(letter) < ord(" ") for letter in path):
        raise ConfigError(
            f"{path!r} has a quotation mark, a backslash or a line break in it, which Slurm does not take in --output; "
            "choose another --out"
        )
    return f'"{path.replace("%", "%%")}/%A_%a.txt"'
