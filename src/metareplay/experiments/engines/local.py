"""Jobs as processes of this machine, which end with the process that started them."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import final

from metareplay.experiments.engines.base import Job, Report, reason_of

PAUSE = 0.2


@final
class Local:
    """Starts a process for each job."""

    waits, queues = True, False

    def threads(self, jobs: int) -> int:
        """The processors of this machine are shared."""
        return max(1, (os.cpu_count() or 1) // jobs)

    def run(
        self, jobs: Sequence[Job], *, at_once: int, out: Path, report: Report, should_stop: Callable[[], bool]
    ) -> dict[int, str]:
        waiting, running = list(range(len(jobs))), dict[int, "subprocess.Popen[str]"]()
        failures: dict[int, str] = {}
        try:
            while waiting or running:
                while waiting and len(running) < at_once and not should_stop():
                    index = waiting.pop(0)
                    running[index] = _start(jobs[index])
                time.sleep(PAUSE)
                failures |= _ended(running)
                report(running.keys(), failures.keys())
                if should_stop():
                    break
        finally:
            for process in running.values():
                process.terminate()  # each saves its state and ends
            for process in running.values():
                process.communicate()
        return failures


def _start(job: Job) -> "subprocess.Popen[str]":
    environment = job.environment(parent=True)
    return subprocess.Popen(job.command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def _ended(running: dict[int, "subprocess.Popen[str]"]) -> dict[int, str]:
    """Remove the processes that have ended; returns the error messages of those that failed."""
    failures = {}
    for index in [index for index, process in running.items() if process.poll() is not None]:
        process = running.pop(index)
        text = process.communicate()[1]  # also closes the pipe
        if process.returncode != 0:
            failures[index] = reason_of(process.returncode, text)
    return failures
