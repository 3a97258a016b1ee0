"""Several runs in parallel, each in its own process and folder."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from metareplay.benchmarks.stored import load_benchmark, store_benchmark
from metareplay.errors import ConfigError, MetaReplayError
from metareplay.experiments.engines.base import PARENT, Engine, Job
from metareplay.experiments.engines.local import Local
from metareplay.experiments.observers import ObserverList, ProgressFile, TensorBoard
from metareplay.experiments.plan import Plan
from metareplay.experiments.results import Results
from metareplay.experiments.run import Run
from metareplay.experiments.run_folder import REQUEST, RunFolder, finished_results
from metareplay.faults import fault_of
from metareplay.files import real_path, write_atomically
from metareplay.interrupts import Interrupted, leavable, stop_on_signal
from metareplay.learner.config import build_config
from metareplay.permissions import permit
from metareplay.settings import Settings, flatten
from metareplay.texts import read_json_file
from metareplay.training.progress import Observer

SEEDS = "seeds.json"
PATIENCE = 60.0
"""Seconds that a repeated run waits for the process that wrote to its folder before."""


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
    repeatable: bool = False
    """Whether the same command is to continue the run after a kill: the file stays until the run has finished."""

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


def forget_unstarted(folder: Path) -> None:
    """Forget the seeds of a call of which no run was begun, because the engine refused them."""
    if not any(folder.glob("seed-*")):
        (folder / SEEDS).unlink(missing_ok=True)


def run_seeds(
    plans: Sequence[Plan],
    *,
    jobs: int,
    resume: bool,
    tensorboard: bool = False,
    report: Callable[[list[SeedStatus]], None] = lambda statuses: None,
    should_stop: Callable[[], bool] = lambda: False,
    engine: Engine | None = None,
    out: Path | None = None,
) -> list[Results]:
    """Run plans that differ in their seed, ``jobs`` at a time; returns their results in order.

    With ``resume`` a finished seed is not run again. If one fails the others continue; then the first error is raised.
    """
    failures = run_side_by_side(
        plans,
        jobs=jobs,
        resume=resume,
        tensorboard=tensorboard,
        report=report,
        should_stop=should_stop,
        engine=engine,
        out=out,
    )
    if failures:
        index, words = next(iter(failures.items()))
        kept = f"{len(plans) - len(failures)} of {len(plans)} seeds are kept"
        raise MetaReplayError(f"seed {plans[index].config.seed} stopped: {words} ({kept})")
    results = [result for plan in plans if (result := finished_results(plan.folder, plan.config)) is not None]
    if len(results) < len(plans) and (engine is None or engine.waits):
        folder, several = plans[0].folder, len(plans) > 1
        what = f"{len(results)} of {len(plans)} seeds are finished in {folder.parent}" if several else f"see {folder}"
        raise Interrupted(f"stopped; {what}; continue with --resume")
    return results


def run_side_by_side(
    plans: Sequence[Plan],
    *,
    jobs: int,
    resume: bool,
    tensorboard: bool = False,
    report: Callable[[list[SeedStatus]], None] = lambda statuses: None,
    should_stop: Callable[[], bool] = lambda: False,
    engine: Engine | None = None,
    out: Path | None = None,
) -> dict[int, str]:
    """Run plans in separate folders, ``jobs`` at a time; returns the error messages of those that failed.

    ``out`` is for files of the engine, by default the folder above the first run's. When asked to stop, running plans
    save their state and end, and the others are not started.
    """
    engine = engine or Local()
    indices = [index for index, plan in enumerate(plans) if not (resume and finished_results(plan.folder, plan.config))]
    wanted = [plans[index] for index in indices]

    def show(running: AbstractSet[int], failed: AbstractSet[int]) -> None:
        at_work, lost = ({indices[place] for place in places} for places in (running, failed))
        report([_status(plan, index in at_work, index in lost) for index, plan in enumerate(plans)])

    with _shared_tasks(wanted, keep=not engine.waits) as tasks:
        if not wanted:
            _remove_shared_tasks(plans)  # of a command that was killed when all its runs had finished
        alone = not isinstance(engine, Local)
        made = [_job(plan, tasks, resume=resume, tensorboard=tensorboard, repeatable=alone) for plan in wanted]
        out = out or plans[0].folder.parent
        try:
            failures = engine.run(made, at_once=jobs, out=out, report=show, should_stop=should_stop)
        except MetaReplayError:
            alone = False  # the engine refused them: nothing is at work
            raise
        finally:
            for job in () if alone else made:
                _withdraw(job)
    return {indices[place]: words for place, words in failures.items()}


def commands_for(plans: Sequence[Plan], *, resume: bool) -> list[str]:
    """The commands of the runs that have not finished, for any scheduler; each continues where it was stopped."""
    wanted = [plan for plan in plans if not (resume and finished_results(plan.folder, plan.config))]
    with _shared_tasks(wanted, keep=True) as tasks:
        made = [_job(plan, tasks, resume=resume, tensorboard=False, repeatable=True) for plan in wanted]
    return [job.line() for job in made]


@contextmanager
def _shared_tasks(plans: Sequence[Plan], *, keep: bool = False) -> Iterator[Mapping[str, Path]]:
    """Files with the tasks of a user's data, by fingerprint, so that they are read only once; removed at the end."""
    files: dict[str, Path] = {}
    try:
        for plan in plans:
            mark, path = plan.config.data.fingerprint, _shared_file(plan)
            if mark is not None and path is not None and mark not in files:
                files[mark] = path
                store_benchmark(path, plan.benchmark)
        yield files
    finally:
        for file in () if keep else files.values():
            file.unlink(missing_ok=True)


def _shared_file(plan: Plan) -> Path | None:
    """Where the tasks of a plan's data are stored for all runs next to it; None for a benchmark."""
    mark = plan.config.data.fingerprint
    return None if mark is None else plan.folder.parent / f".tasks-{mark}.tmp"


def _remove_shared_tasks(plans: Sequence[Plan]) -> None:
    for plan in plans:
        if (path := _shared_file(plan)) is not None:
            path.unlink(missing_ok=True)


def _job(plan: Plan, tasks: Mapping[str, Path], *, resume: bool, tensorboard: bool, repeatable: bool) -> Job:
    """The process of one run; its folder tells it what to do."""
    if repeatable and not resume:
        RunFolder(plan.folder).refuse_if_used()
    shared = tasks.get(plan.config.data.fingerprint or "")
    request = Request(
        config=plan.config.dump(),
        source=plan.source,
        tasks=None if shared is None else real_path(shared),
        resume=resume or repeatable,
        tensorboard=tensorboard,
        repeatable=repeatable,
    )
    write_atomically(plan.folder / REQUEST, request.model_dump_json())
    command = (sys.executable, "-m", "metareplay.experiments.seeds", str(real_path(plan.folder)))
    return Job(f"{plan.config.method} seed {plan.config.seed}", command, plan.folder, plan.config.threads)


def _withdraw(job: Job) -> None:
    """Leave nothing of a run that was not started."""
    (job.folder / REQUEST).unlink(missing_ok=True)
    with suppress(OSError):  # not empty: it was started
        job.folder.rmdir()


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
    path = folder / REQUEST
    if not path.is_file() and (folder / "results.json").is_file():
        return  # a job that is repeated after it has finished
    if not path.is_file():
        raise MetaReplayError(f"{folder} holds no request for a run; it was withdrawn, or the folder was replaced")
    request = Request.model_validate(read_json_file(path))
    if not request.repeatable:
        path.unlink()
    asked = should_end()
    with leavable(f"stopped before {folder} was begun"):
        plan = request.plan(folder)  # with the first task's inputs, which may be features of a backbone
    if not request.repeatable or finished_results(folder, plan.config) is None:
        observers: list[Observer] = [ProgressFile(folder / "progress.json")]
        if request.tensorboard:
            observers.append(TensorBoard(folder / "tensorboard", plan.config.training.log_every))
        run = Run(plan, observer=ObserverList(observers), should_stop=asked)
        run.execute(resume=request.resume, wait=PATIENCE if request.repeatable else 0.0)
    path.unlink(missing_ok=True)


def should_end() -> Callable[[], bool]:
    """Whether a job is to save its state and end: it was asked to, or the process that it belongs to is gone."""
    asked, parent = stop_on_signal(), os.environ.get(PARENT)
    # the parent may have been killed while this process started
    return lambda: asked() or (parent is not None and os.getppid() != int(parent))


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
