"""Several seeds side by side, each in a process and a folder of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from metareplay.errors import MetaReplayError
from metareplay.experiments.observers import ObserverList, ProgressFile, TensorBoard
from metareplay.experiments.run import Interrupted, Run, finished_results
from metareplay.files import write_atomically
from metareplay.learner.config import RunConfig
from metareplay.training.progress import Observer


class SeedStatus(NamedTuple):
    """How far one seed is: finished tasks, and the share of the whole run in [0, 1]."""

    seed: int
    task: int
    share: float
    state: str


def run_seeds(
    configs: Sequence[RunConfig],
    out: Path,
    *,
    jobs: int,
    resume: bool,
    tensorboard: bool = False,
    report: Callable[[list[SeedStatus]], None] = lambda statuses: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[dict[str, Any]]:
    """Run configurations that differ in their seed, ``jobs`` at a time; returns their results in order.

    A finished seed is not run again with ``resume``. If one fails the others go on; then the first error is raised.
    """
    folders = [out / f"seed-{config.seed}" for config in configs]
    failures = run_side_by_side(
        list(zip(configs, folders, strict=True)), jobs=jobs, resume=resume, tensorboard=tensorboard, report=report, should_stop=should_stop
    )
    if failures:
        index, words = next(iter(failures.items()))
        kept = f"{len(folders) - len(failures)} of {len(folders)} seeds are kept"
        raise MetaReplayError(f"seed {configs[index].seed} stopped: {words} ({kept})")
    done = sum(finished_results(folder, config) is not None for folder, config in zip(folders, configs, strict=True))
    if done < len(folders):
        raise Interrupted(f"stopped; {done} of {len(folders)} seeds are finished in {out}: continue with --resume")
    return [json.loads((folder / "results.json").read_text()) for folder in folders]


def run_side_by_side(
    runs: Sequence[tuple[RunConfig, Path]],
    *,
    jobs: int,
    resume: bool,
    tensorboard: bool = False,
    report: Callable[[list[SeedStatus]], None] = lambda statuses: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[int, str]:
    """Run configurations in folders of their own, ``jobs`` at a time; returns the last words of those that failed.

    When asked to stop, those that run save their state and end, and the others are left.
    """
    waiting = [index for index, (config, folder) in enumerate(runs) if not (resume and finished_results(folder, config))]
    running: dict[int, subprocess.Popen[str]] = {}
    failures: dict[int, str] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs and not should_stop():
                index = waiting.pop(0)
                running[index] = _start(*runs[index], resume, tensorboard)
            time.sleep(0.2)
            for index in [index for index, process in running.items() if process.poll() is not None]:
                process = running.pop(index)
                words = _last_words(process)
                if process.returncode != 0:
                    failures[index] = words
            report([_status(config, folder, index in running, index in failures) for index, (config, folder) in enumerate(runs)])
            if should_stop():
                break
    finally:
        for process in running.values():
            process.terminate()  # each saves its state and ends
        for process in running.values():
            process.communicate()
    return failures


def _start(config: RunConfig, folder: Path, resume: bool, tensorboard: bool) -> "subprocess.Popen[str]":
    folder.mkdir(parents=True, exist_ok=True)
    request = folder / "request.json"
    write_atomically(
        request, json.dumps({"config": config.model_dump(mode="json"), "resume": resume, "tensorboard": tensorboard, "parent": os.getpid()})
    )
    environment = {**os.environ, "OMP_NUM_THREADS": str(config.threads)}
    command = [sys.executable, "-m", "metareplay.experiments.seeds", str(folder)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def _last_words(process: "subprocess.Popen[str]") -> str:
    text = process.communicate()[1].strip()  # also closes the pipe
    return text.splitlines()[-1] if text else f"its process ended with code {process.returncode}"


def _status(config: RunConfig, folder: Path, running: bool, failed: bool) -> SeedStatus:
    """Read how far a seed is from what it has logged."""
    if (folder / "results.json").is_file() and not running:
        return SeedStatus(config.seed, 0, 1.0, "finished")
    task, share = 0, 0.0
    try:
        last = (folder / "progress.json").read_text()
        facts = json.loads(last)
        task, share = facts["task"], facts["share"]
    except (OSError, ValueError):
        pass
    return SeedStatus(config.seed, task, share, "failed" if failed else "running" if running else "waiting")


def _child(folder: Path) -> None:
    """What the process of one seed does."""
    request = json.loads((folder / "request.json").read_text())
    (folder / "request.json").unlink()
    config = RunConfig.model_validate(request["config"])
    asked, parent = stop_on_signal(), request["parent"]  # who may have been killed while this process started
    watchers: list[Observer] = [ProgressFile(folder / "progress.json")]
    if request["tensorboard"]:
        watchers.append(TensorBoard(folder / "tensorboard", config.training.log_every))
    run = Run(config, folder, observer=ObserverList(watchers), should_stop=lambda: asked() or os.getppid() != parent)
    run.execute(resume=request["resume"])


def stop_on_signal() -> Callable[[], bool]:
    """After the first Ctrl-C (or a polite kill) the run saves its state and stops; a second one stops at once."""
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
