"""Several runs in parallel, each in its own process and folder."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from metareplay.benchmarks.stored import load_benchmark, store_benchmark
from metareplay.errors import ConfigError, MetaReplayError
from metareplay.experiments.observers import ObserverList, ProgressFile, TensorBoard
from metareplay.experiments.plan import Plan
from metareplay.experiments.results import Results
from metareplay.experiments.run import Interrupted, Run
from metareplay.experiments.run_folder import finished_results
from metareplay.faults import fault_of
from metareplay.files import write_atomically
from metareplay.learner.config import build_config
from metareplay.permissions import permit
from metareplay.settings import Settings, flatten
from metareplay.texts import read_json_file
from metareplay.training.progress import Observer

SEEDS, REQUEST = "seeds.json", "request.json"


class SeedStatus(NamedTuple):
    """The progress of one seed: finished tasks, and the fraction of the whole run in [0, 1]."""

    seed: int
    task: int
    share: float
    state: str


class Request(Settings):
    """What the process of one run is to do; a small file in the run's folder."""

    config: dict[str, Any]
    source: str
    tasks: Path | None
    """The file with data that have been read already; None for a known data set or generated data."""
    resume: bool
    tensorboard: bool
    parent: int
    """The id of the parent process."""

    def plan(self, folder: Path) -> Plan:
        """The plan that the parent process made, which also permitted its network."""
        permit(str(self.config.get("network")))
        config = build_config({}, flatten(self.config), str(folder / REQUEST))
        benchmark = None if self.tasks is None else load_benchmark(self.tasks, config.data.fingerprint)
        return Plan.of(config, folder, benchmark=benchmark, source=self.source)


def seed_plans(plan: Plan, seeds: range) -> list[Plan]:
    """One plan per seed, in subfolders of the plan's folder, which records the seeds."""
    write_atomically(plan.folder / SEEDS, json.dumps({"first": seeds.start, "count": len(seeds)}))
    return [plan.with_seed(seed, plan.folder / f"seed-{seed}") for seed in seeds]


def earlier_seeds(folder: Path) -> range | None:
    """The seeds that an earlier call ran in a folder; None if there was only one."""
    path = folder / SEEDS
    if not path.is_file():
        return None
    try:
        content = read_json_file(path)
        first, count = int(content["first"]), int(content["count"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise ConfigError(f"{path} is damaged; give --seeds again to continue") from error
    return range(first, first + count)


def run_seeds(
    plans: Sequence[Plan],
    *,
    jobs: int,
    resume: bool,
    tensorboard: bool = False,
    report: Callable[[list[SeedStatus]], None] = lambda statuses: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Results]:
    """Run plans that differ in their seed, ``jobs`` at a time; returns their results in order.

    With ``resume`` a finished seed is not run again. If one fails the others continue; then the first error is raised.
    """
    failures = run_side_by_side(
        plans, jobs=jobs, resume=resume, tensorboard=tensorboard, report=report, should_stop=should_stop
    )
    if failures:
        index, words = next(iter(failures.items()))
        kept = f"{len(plans) - len(failures)} of {len(plans)} seeds are kept"
        raise MetaReplayError(f"seed {plans[index].config.seed} stopped: {words} ({kept})")
    results = [result for plan in plans if (result := finished_results(plan.folder, plan.config)) is not None]
    if len(results) < len(plans):
        out = plans[0].folder.parent
        raise Interrupted(
            f"stopped; {len(results)} of {len(plans)} seeds are finished in {out}; continue with --resume"
        )
    return results


def run_side_by_side(
    plans: Sequence[Plan],
    *,
    jobs: int,
    resume: bool,
    tensorboard: bool = False,
    report: Callable[[list[SeedStatus]], None] = lambda statuses: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[int, str]:
    """Run plans in separate folders, ``jobs`` at a time; returns the error messages of those that failed.

    When asked to stop, running plans save their state and end, and the others are not started.
    """
    waiting = [index for index, plan in enumerate(plans) if not (resume and finished_results(plan.folder, plan.config))]
    running: dict[int, subprocess.Popen[str]] = {}
    failures: dict[int, str] = {}
    with _shared_tasks([plans[index] for index in waiting]) as tasks:
        try:
            while waiting or running:
                while waiting and len(running) < jobs and not should_stop():
                    index = waiting.pop(0)
                    running[index] = _start(plans[index], tasks, resume=resume, tensorboard=tensorboard)
                time.sleep(0.2)
                failures |= _ended(running)
                report([_status(plan, index in running, index in failures) for index, plan in enumerate(plans)])
                if should_stop():
                    break
        finally:
            for process in running.values():
                process.terminate()  # each saves its state and ends
            for process in running.values():
                process.communicate()
    return failures


@contextmanager
def _shared_tasks(plans: Sequence[Plan]) -> Iterator[Mapping[str, Path]]:
    """Files with the tasks of a user's data, by fingerprint, so that they are read only once; removed at the end."""
    files: dict[str, Path] = {}
    try:
        for plan in plans:
            mark = plan.config.data.fingerprint
            if mark is not None and mark not in files:
                files[mark] = plan.folder.parent / f".tasks-{mark}.tmp"
                store_benchmark(files[mark], plan.benchmark)
        yield files
    finally:
        for file in files.values():
            file.unlink(missing_ok=True)


def _start(plan: Plan, tasks: Mapping[str, Path], *, resume: bool, tensorboard: bool) -> "subprocess.Popen[str]":
    plan.folder.mkdir(parents=True, exist_ok=True)
    shared = tasks.get(plan.config.data.fingerprint or "")
    request = Request(
        config=plan.config.dump(),
        source=plan.source,
        tasks=None if shared is None else shared.resolve(),
        resume=resume,
        tensorboard=tensorboard,
        parent=os.getpid(),
    )
    write_atomically(plan.folder / REQUEST, request.model_dump_json())
    environment = {**os.environ, "OMP_NUM_THREADS": str(plan.config.threads)}
    command = [sys.executable, "-m", "metareplay.experiments.seeds", str(plan.folder)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def _ended(running: dict[int, "subprocess.Popen[str]"]) -> dict[int, str]:
    """Remove the processes that have ended; returns the error messages of those that failed."""
    failures = {}
    for index in [index for index, process in running.items() if process.poll() is not None]:
        process = running.pop(index)
        text = process.communicate()[1].strip()  # also closes the pipe
        if process.returncode != 0:
            failures[index] = text.splitlines()[-1] if text else f"its process ended with code {process.returncode}"
    return failures


def _status(plan: Plan, running: bool, failed: bool) -> SeedStatus:
    """The progress of a seed, from the file it writes."""
    seed = plan.config.seed
    if (plan.folder / "results.json").is_file() and not running:
        return SeedStatus(seed, 0, 1.0, "finished")
    task, share = 0, 0.0
    try:
        facts = read_json_file(plan.folder / "progress.json")
        task, share = facts["task"], facts["share"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return SeedStatus(seed, task, share, "failed" if failed else "running" if running else "waiting")


def _child(folder: Path) -> None:
    """The main function of one seed's process."""
    request = Request.model_validate(read_json_file(folder / REQUEST))
    (folder / REQUEST).unlink()
    asked, plan = stop_on_signal(), request.plan(folder)
    observers: list[Observer] = [ProgressFile(folder / "progress.json")]
    if request.tensorboard:
        observers.append(TensorBoard(folder / "tensorboard", plan.config.training.log_every))
    # the parent may have been killed while this process started
    run = Run(plan, observer=ObserverList(observers), should_stop=lambda: asked() or os.getppid() != request.parent)
    run.execute(resume=request.resume)


def stop_on_signal() -> Callable[[], bool]:
    """After the first Ctrl-C (or SIGTERM) the run saves its state and stops; a second one stops it immediately."""
    import signal

    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    return lambda: bool(asked)


if __name__ == "__main__":
    try:
        _child(Path(sys.argv[1]))
    except MetaReplayError as problem:
        print(problem, file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        fault = fault_of(error)
        print(fault.sentence, file=sys.stderr)
        sys.exit(fault.code)
