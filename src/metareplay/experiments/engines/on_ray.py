"""Jobs as Ray tasks, on a cluster that exists or on one that is started here for the runs."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from metareplay.errors import ConfigError, MetaReplayError
from metareplay.experiments.engines.base import ANYTHING, PARENT, Job, Report, Resources, processors_of, reason_of
from metareplay.interrupts import leavable

RETRIES = 5
"""How often a job whose worker was lost is taken up by another."""
PAUSE = 0.2
PATIENCE = 5.0
"""Seconds within which a cluster has to accept a connection."""
IMPATIENT = {"RAY_NUM_REDIS_GET_RETRIES": "2", "RAY_py_gcs_connect_timeout_s": "10"}
"""Ray's own settings for an existing cluster, unless a user has set them: where something else than Ray listens, it
tries for more than six minutes without them, and for one with them."""
FOUND = ("auto", "local")
"""Addresses that are words: the cluster of this machine, or of RAY_ADDRESS; one that is started here."""
MIB = 2**20


class Lost(Exception):  # noqa: N818
    """A job's process was killed from outside; the job can be repeated."""


@final
class OnRay:
    """Submits a task for each job. All machines need the package, and the same folders on a shared disk."""

    waits = True

    def __init__(self, address: str | None = None, resources: Resources = ANYTHING) -> None:
        if resources.time is not None:
            raise ConfigError("--resources time has no effect with --on ray: Ray has no time limits. Remove it")
        self.address, self.resources = None if address == "local" else address, resources
        self.queues = self.address is not None  # one that is started here is as large as what runs at once

    def threads(self, jobs: int) -> int:
        """As many as a task has processors."""
        return processors_of(self.resources)

    def run(
        self, jobs: Sequence[Job], *, at_once: int, out: Path, report: Report, should_stop: Callable[[], bool]
    ) -> dict[int, str]:
        if not jobs:
            return {}
        failures: dict[int, str] = {}
        with _cluster(self.address, at_once, self.resources) as ray:
            refuse_what_no_node_has(ray.nodes(), self.resources)
            task = _task(ray, self.resources)
            waiting, running = list(range(len(jobs))), dict[Any, int]()
            while waiting or running:
                while waiting and len(running) < at_once:
                    index = waiting.pop(0)
                    job = jobs[index]
                    running[task.options(name=job.name).remote(_portable(job), str(Path.cwd()))] = index
                done, _ = ray.wait(list(running), timeout=PAUSE)
                for reference in done:
                    index = running.pop(reference)
                    if problem := _problem(ray, reference):
                        failures[index] = problem
                report(set(running.values()), failures.keys())
                if should_stop():
                    _stop(ray, list(running))
                    break
        return failures


def _portable(job: Job) -> tuple[list[str], dict[str, str]]:
    """What a worker needs to know: the command, and the environment where it differs from the worker's."""
    python, *rest = job.command
    command = ["python", *rest] if python == sys.executable else [python, *rest]
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "METAREPLAY_DATA") if name in os.environ}
    return command, {"OMP_NUM_THREADS": str(job.threads), **kept}


def _execute(job: tuple[list[str], dict[str, str]], folder: str) -> str | None:
    """In a Ray worker: run the command as a separate process, with the worker as its parent; None if it succeeds."""
    command, environment = job
    command = [sys.executable if word == "python" and place == 0 else word for place, word in enumerate(command)]
    everything = {**os.environ, **environment, PARENT: str(os.getpid())}
    process = subprocess.Popen(
        command, cwd=folder, env=everything, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        text = _written(process)
    except BaseException:  # the task is cancelled
        process.terminate()
        process.communicate()
        raise
    if process.returncode < 0:
        raise Lost(reason_of(process.returncode, text))
    return reason_of(process.returncode, text) if process.returncode > 0 else None


def _written(process: "subprocess.Popen[str]") -> str:
    """What a process has written to standard error when it ends. Ray cancels a task only between two steps of Python,
    so that a single long wait would make a Ctrl-C last until Ray gives up."""
    while True:
        try:
            return process.communicate(timeout=PAUSE)[1]
        except subprocess.TimeoutExpired:
            continue


def _task(ray: Any, resources: Resources) -> Any:
    wanted: Mapping[str, Any] = {
        "num_cpus": resources.cpus if resources.cpus is not None else 1,
        "num_gpus": resources.gpus or 0,
        **({"memory": resources.memory * MIB} if resources.memory else {}),
    }
    return ray.remote(max_retries=RETRIES, retry_exceptions=[Lost], **wanted)(_execute)


def _problem(ray: Any, reference: Any) -> str | None:
    """Why a task failed; None if it did not."""
    try:
        words: str | None = ray.get(reference)
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines()
        return lines[-1] if lines else type(error).__name__
    return words


def _stop(ray: Any, running: Sequence[Any]) -> None:
    """Ask tasks to end; each saves its state first."""
    for reference in running:
        ray.cancel(reference)
    ray.wait(list(running), num_returns=len(running), timeout=60) if running else None


def refuse_what_no_node_has(nodes: Sequence[Mapping[str, Any]], resources: Resources) -> None:
    """Refuse a request that no machine of the cluster can meet, since its tasks would wait for ever."""
    available = [node["Resources"] for node in nodes if node.get("Alive") and node.get("Resources")]
    wanted = {"cpus": ("CPU", resources.cpus or 1), "gpus": ("GPU", resources.gpus or 0)}
    wanted |= {"memory": ("memory", (resources.memory or 0) * MIB)}
    for option, (name, amount) in wanted.items():
        most = max((float(machine.get(name, 0)) for machine in available), default=0.0)
        if amount > most:
            has = f"{most / MIB:.0f}M" if name == "memory" else f"{most:g}"
            needs = f"{amount / MIB:.0f}M" if name == "memory" else f"{amount:g}"
            raise MetaReplayError(
                f"--resources {option}={needs}: no machine of the Ray cluster has that, the largest has {has}; ask for "
                "less, or add a machine to the cluster"
            )
    if not any(all(float(machine.get(name, 0)) >= amount for name, amount in wanted.values()) for machine in available):
        raise MetaReplayError(
            "--resources: no machine of the Ray cluster has all of this at once; ask for less, or add a machine"
        )


def refuse_unreachable(address: str | None) -> None:
    """Refuse host:port, or ray://host:port, where nothing accepts connections: Ray itself tries for minutes."""
    if address is None or address in FOUND:
        return
    match = re.fullmatch(r"(?:ray://)?(\[[^\]]+\]|[^:/]+):(\d{1,5})", address)
    if address.startswith(("http://", "https://")):
        raise ConfigError(
            f"--on ray={address} is the address of a dashboard; the cluster itself answers at ray=HOST:PORT (by "
            "default port 6379) or ray=ray://HOST:PORT (10001)"
        )
    if match is None and "://" in address and not address.startswith("ray://"):
        return  # of a package that extends Ray
    if match is None:
        raise ConfigError(f"--on ray={address} is not an address; write ray=HOST:PORT, ray=ray://HOST:PORT or ray=auto")
    try:
        socket.create_connection((match[1].strip("[]"), int(match[2])), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        words = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        raise MetaReplayError(
            f"--on ray={address}: nothing can be reached there ({words}); check the address and that the cluster runs "
            "(ray status), or use --on ray to start one here"
        ) from error


@contextmanager
def _cluster(address: str | None, at_once: int, resources: Resources) -> Iterator[Any]:
    """A connection to the cluster, or a cluster on this machine while the runs last."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address is not None:
        for name, value in IMPATIENT.items():
            os.environ.setdefault(name, value)
    else:
        os.environ.setdefault("RAY_worker_niceness", "0")  # as local processes; Ray's default is 15
    try:
        import ray
    except ImportError as error:
        raise ConfigError('--on ray needs the package ray: pip install "metareplay[ray]"') from error
    refuse_unreachable(address)
    where: dict[str, Any] = {"address": address or "local"}
    if address is None:
        share = resources.cpus if resources.cpus is not None else 1
        where |= {"num_cpus": max(1, round(at_once * share)), "include_dashboard": False}
        where |= {} if resources.gpus is None else {"num_gpus": max(1, round(at_once * resources.gpus))}
    try:
        with leavable("stopped before Ray was reached; nothing was started"):
            ray.init(**where, configure_logging=False, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        if address == "auto":
            raise MetaReplayError(
                "--on ray=auto: no Ray cluster was found; start one (ray start --head), name it with ray=HOST:PORT, or "
                "use --on ray to start one for the runs"
            ) from error
        words = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if address is None:
            raise MetaReplayError(f"Ray could not be started on this machine: {words}") from error
        raise MetaReplayError(
            f"--on ray={address}: no Ray cluster answers there ({words}); check the address, that its Ray has this "
            f"version ({ray.__version__}), and that this machine may use it (ray status)"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()
