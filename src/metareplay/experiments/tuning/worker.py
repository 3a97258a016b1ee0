"""A worker: takes trials of a study until there are enough. Any number of them share a study."""

import argparse
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, final

from metareplay.errors import ConfigError, DataError, MetaReplayError, TrainingDiverged
from metareplay.experiments.engines.base import Job
from metareplay.experiments.results import Results
from metareplay.experiments.run import Run
from metareplay.experiments.run_folder import finished_results
from metareplay.experiments.seeds import should_end
from metareplay.experiments.tuning.study import Study, deadline_after
from metareplay.files import real_path
from metareplay.interrupts import Interrupted
from metareplay.training.progress import NullObserver, Stage

if TYPE_CHECKING:
    import optuna

RUN = "run"
"""The folder of a trial's run, in that of the trial."""
HEAVY = ("checkpoint", "model")
"""What is removed when a trial has ended: a study needs its figures alone."""


class Pruned(MetaReplayError):  # noqa: N818
    """A trial is not worth finishing."""


@final
class Watch(NullObserver):
    """Tells the study how a trial does after each task, and ends it when others do better."""

    def __init__(self, trial: "optuna.trial.Trial") -> None:
        self.trial = trial

    def stage_ends(self, stage: Stage, scores: Sequence[float]) -> None:
        if stage.update:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # after a damaged checkpoint a task is learned, and reported, again
            self.trial.report(sum(scores) / len(scores), stage.number)
        if stage.number + 1 < stage.total and self.trial.should_prune():
            raise Pruned(f"pruned after task {stage.number}")


def work(
    folder: Path, trials: int, hours: float | None = None, *, should_stop: Callable[[], bool] = lambda: False
) -> None:
    """Run trials until the study has this many, or time is up; a trial that is stopped is continued by another
    worker."""
    study, deadline = Study(folder), deadline_after(hours)

    def over() -> bool:
        return should_stop() or time.monotonic() > deadline

    while not over():
        with study.claimed(trials) as trial:
            if trial is None:
                return
            _take(study, trial, over)


def _take(study: Study, trial: "optuna.trial.Trial", over: Callable[[], bool]) -> None:
    """Run a trial and tell the study what became of it. What was run before is not run again."""
    states, place = study.optuna.trial.TrialState, study.place(trial.number) / RUN
    if (known := study.earlier(trial)) is not None:
        for task, score in known.after_tasks.items():
            trial.report(score, task)
        study.study.tell(trial, known.value)
        return
    try:
        value = study.definition.value(_results(study, trial, place, over))
    except Interrupted:
        raise  # it stays marked as running, until someone continues it
    except Pruned:
        study.study.tell(trial, state=states.PRUNED)
    except (ConfigError, DataError, TrainingDiverged) as problem:  # of these settings
        trial.set_user_attr("problem", str(problem))
        study.study.tell(trial, state=states.FAIL)
    else:
        study.study.tell(trial, value)
    for name in HEAVY:
        shutil.rmtree(place / name, ignore_errors=True)


def _results(study: Study, trial: "optuna.trial.Trial", place: Path, over: Callable[[], bool]) -> Results:
    """The results of a trial, from the beginning, from its last checkpoint, or as they are."""
    plan = study.definition.plan(study.folder, place, study.values(trial))
    results = finished_results(place, plan.config)
    if results is None:
        results = Run(plan, observer=Watch(trial), should_stop=over).execute(resume=True)
    taken = results.seconds
    trial.set_user_attr("seconds", None if taken is None else (taken.train or 0) + (taken.evaluate or 0))
    return results


def worker_jobs(folder: Path, trials: int, hours: float | None, count: int, threads: int) -> list[Job]:
    """This many workers, for any engine."""
    command = [sys.executable, "-m", "metareplay.experiments.tuning.worker", str(real_path(folder)), str(trials)]
    command += [] if hours is None else ["--hours", f"{hours:g}"]
    return [Job(f"worker {index}", tuple(command), folder, threads) for index in range(count)]


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("trials", type=int)
    parser.add_argument("--hours", type=float)
    given = parser.parse_args()
    try:
        work(given.folder, given.trials, given.hours, should_stop=should_end())
    except Interrupted:
        pass  # as asked; the state is saved
    except MetaReplayError as problem:
        print(problem, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    _main()
