"""Tasks that are learned in the background: one at a time, in a separate process, while the model answers."""

import asyncio
import json
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from metareplay.permissions import permitted
from metareplay.serve.learning import Examples, check_name, read_task, written
from metareplay.serve.live import LiveModel
from metareplay.serve.refusals import RequestError
from metareplay.texts import read_json

REMEMBERED = 20


class Wanted(NamedTuple):
    """What a client says about a task."""

    name: str | None
    label: str | None = None
    max_change: float | None = None
    """How far the answers of known tasks may move; if they would move further, the task is refused."""


@dataclass
class Job:
    """A task that is to be learned."""

    number: int
    name: str
    examples: int
    state: Literal["learning", "done", "failed"] = "learning"
    error: str | None = None
    began: float = field(default_factory=time.time)
    ended: float | None = None

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "job": self.number,
            "name": self.name,
            "examples": self.examples,
            "state": self.state,
            "error": self.error,
            "seconds": round((self.ended or time.time()) - self.began, 1),
        }


class Jobs:
    """The job at work, and those before it."""

    def __init__(self, live: LiveModel) -> None:
        self.live = live
        self._jobs: deque[Job] = deque(maxlen=REMEMBERED)
        self._count = 0
        self._work: asyncio.Task[None] | None = None

    def facts(self) -> list[dict[str, Any]]:
        """The newest first."""
        return [job.facts() for job in reversed(self._jobs)]

    def of(self, number: int) -> dict[str, Any]:
        """One job."""
        found = next((job for job in self._jobs if job.number == number), None)
        if found is None:
            raise RequestError(404, f"there is no job {number}; /jobs lists the last {REMEMBERED}")
        return found.facts()

    async def begin(self, examples: Examples, asked: Wanted) -> dict[str, Any]:
        """Check the examples, and begin to learn them."""
        self._refuse_second()
        estimator = self.live.current.estimator
        name = check_name(asked.name, estimator)
        folder = tempfile.TemporaryDirectory(prefix="metareplay-")
        try:
            place, settings = Path(folder.name), self.live.settings
            path = await asyncio.to_thread(written, examples, estimator, settings, place)
            new = await asyncio.to_thread(read_task, path, name, asked.label, estimator)
            self._refuse_second()  # another may have begun meanwhile
        except BaseException:
            folder.cleanup()
            raise
        self._count += 1
        job = Job(self._count, name, len(new.tasks[0].x))
        self._jobs.append(job)
        self._work = asyncio.create_task(self._run(job, folder, path, asked))
        return job.facts()

    def _refuse_second(self) -> None:
        if self._work is not None and not self._work.done():
            raise RequestError(
                409, f"the task {self._jobs[-1].name!r} is being learned; wait until it has ended: /jobs", {}
            )

    async def _run(self, job: Job, folder: "tempfile.TemporaryDirectory[str]", path: Path, asked: Wanted) -> None:
        facts: dict[str, Any] = {"folder": str(self.live.folder), "path": str(path), "name": job.name}
        facts |= {"label": asked.label, "max_change": asked.max_change, "permitted": permitted()}
        try:
            with folder:
                said = path.with_name("job.json")
                said.write_text(json.dumps(facts), encoding="utf-8")
                job.error = await _learn(said)
            await asyncio.to_thread(self.live.refresh)
            job.state = "done" if job.error is None else "failed"
        except asyncio.CancelledError:
            job.state, job.error = "failed", "the server was stopped; the model is unchanged"
            raise
        except Exception as error:  # whatever the system refuses
            job.state, job.error = "failed", f"the task could not be learned ({type(error).__name__})"
        finally:
            job.ended = time.time()

    async def stop(self) -> None:
        """End the job at work; the stored model stays as it was."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)


async def _learn(path: Path) -> str | None:
    """Run the job's process to its end; what went wrong, or None."""
    command = (sys.executable, "-m", "metareplay.serve.learn_process", str(path))
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        process.terminate()
        await process.wait()
        raise
    if process.returncode == 0:
        return None
    try:
        return str(read_json(output.splitlines()[-1])["error"])
    except (IndexError, KeyError, ValueError):
        return "the task could not be learned; the server's log says why. The model is unchanged"
