"""An estimate of how long a run takes, from a few timed steps."""

import time

import torch

from metareplay.benchmarks.base import TaskData
from metareplay.experiments.plan import Plan
from metareplay.experiments.run import new_learner
from metareplay.heap import keep_freed_memory

FEW = 256
"""Examples of each task that the timed steps see."""


def seconds_of_run(plan: Plan, steps: int = 3) -> float:
    """Estimated training time in seconds: the time of a step in the second task times the steps of all tasks.

    With some methods later tasks cost more than the second, and testing is not included.
    """
    config, benchmark, training = plan.config, plan.benchmark, plan.config.training
    torch.set_num_threads(config.threads)
    keep_freed_memory()  # as a run does
    short = training.model_copy(update={"iterations": steps + 1, "epochs": None})
    learner = new_learner(config.model_copy(update={"training": short}), benchmark)
    if not learner.strategy.takes_steps:
        return 0.0
    tasks, seconds = list(benchmark[:2]), 0.0
    for task in tasks:
        few = TaskData(task.train.x[:FEW], task.train.y[:FEW])
        trainer = iter(learner.begin_task(few, benchmark.width(task), expected_tasks=benchmark.expected_tasks))
        next(trainer)  # warm-up
        began = time.perf_counter()
        for _ in range(steps):
            next(trainer)
        seconds = (time.perf_counter() - began) / steps
        for _ in trainer:  # let the trainer finish
            pass
    batches = -(-len(tasks[0].train.x) // training.batch_size)
    length = training.iterations or batches * (training.epochs or 1)
    return seconds * length * len(benchmark)
