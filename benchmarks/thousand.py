"""A thousand small tasks: what a task, the model, loading and predicting cost as tasks grow.

python -m benchmarks.thousand [--tasks 1000] [--iterations 20] [--without-statistics]

CPU times of one thread, in milliseconds. A task has 60 examples of eight inputs in two classes, around centres of its
own; replay regularises one random old task in each step. Prints a line of a Markdown table at every moment.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from metareplay import ContinualClassifier
from metareplay.heap import keep_freed_memory
from metareplay.learner.learner import ContinualLearner

MOMENTS = (2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Numbers of tasks after which everything is measured."""
LAST = 5
"""Tasks over which times are averaged."""
INPUTS, ROWS, ASKED = 8, 60, 100
SETTINGS = {
    "hypernet.kind": "plain",
    "hypernet.hidden": [16],
    "hypernet.task_embedding_size": 16,
    "strategy.strength": 10.0,
    "strategy.old_tasks": 1,
    "strategy.targets": "recomputed",
    "training.batch_size": 30,
    "training.learning_rate": 0.01,
    "statistics.networks": 1,
}
HEADERS = (
    *("tasks", "train a task, ms", "finish it, ms", "model, kB", "of it per task, kB", "save, ms", "load, ms"),
    *("predict 100, task given, ms", "task inferred, ms", "right task, %", "right label, task given, %", "memory, MB"),
)
Array = npt.NDArray[np.float32]


def task_of(number: int, rows: int = ROWS) -> tuple[Array, npt.NDArray[np.str_]]:
    """Two clouds around centres of the task's own."""
    drawn = np.random.default_rng(number)
    centre = drawn.normal(size=INPUTS) * 3
    direction = drawn.normal(size=INPUTS)
    side = np.arange(rows) % 2
    x = centre + np.where(side[:, None] == 1, 1.0, -1.0) * direction + 0.5 * drawn.normal(size=(rows, INPUTS))
    return x.astype(np.float32), np.array([f"{number}-{one}" for one in side])


def timed(call: Callable[[], object]) -> float:
    """CPU milliseconds."""
    began = time.process_time()
    call()
    return 1000 * (time.process_time() - began)


def watch_finishing() -> list[float]:
    """Collects how long each task takes to finish: its statistics, its calibration, what audits need."""
    taken: list[float] = []
    finish = ContinualLearner.finish_task

    def watched(learner: ContinualLearner, *arguments: Any, **named: Any) -> Any:
        began = time.process_time()
        try:
            return finish(learner, *arguments, **named)
        finally:
            taken.append(1000 * (time.process_time() - began))

    ContinualLearner.finish_task = watched  # type: ignore[method-assign]
    return taken


def measure(model: ContinualClassifier, train: float, finish: float, folder: Path) -> list[str]:
    """One line of the table."""
    tasks = len(model.task_names)
    saving = timed(lambda: model.save(folder))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1000
    loading = timed(lambda: ContinualClassifier.load(folder))
    asked = np.linspace(0, tasks - 1, min(tasks, 10)).astype(int)
    fresh = [task_of(int(number), ROWS + 20) for number in asked]
    x = np.concatenate([rows[ROWS:] for rows, _ in fresh])[:ASKED]
    truth = np.repeat([str(number) for number in asked], 20)[:ASKED]
    given = timed(lambda: model.predict(x, task=str(asked[-1])))
    inferred = timed(lambda: model.predict(x))
    right = np.mean(np.array(model.predict_task(x)) == truth)
    known = zip(asked, fresh, strict=True)
    labels = np.mean([np.mean(model.predict(rows[ROWS:], task=str(n)) == y[ROWS:]) for n, (rows, y) in known])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    numbers = (train, finish, size, size / tasks, saving, loading, given, inferred)
    shares = (100 * right, 100 * labels, memory)
    return [str(tasks), *(f"{number:.0f}" for number in (*numbers, *shares))]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--without-statistics", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    settings = {**SETTINGS, "training.iterations": given.iterations}
    if given.without_statistics:
        del settings["statistics.networks"]
        settings |= {"statistics.collect": False, "inference.calibrate": False}
    model = ContinualClassifier("pr-dirac-sr", network="mlp-16", settings=settings)
    print(f"| {' | '.join(HEADERS)} |\n|{'---|' * len(HEADERS)}", flush=True)
    trained: list[float] = []
    finished = watch_finishing()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.tasks):
            x, y = task_of(number)
            whole = timed(lambda x=x, y=y, number=number: model.learn_task(x, y, name=str(number)))  # type: ignore[misc]
            trained.append(whole - finished[-1])
            if number + 1 in MOMENTS:
                means = [float(np.mean(times[-LAST:])) for times in (trained, finished)]
                line = measure(model, means[0], means[1], Path(folder) / "model")
                print(f"| {' | '.join(line)} |", flush=True)


if __name__ == "__main__":
    main()
