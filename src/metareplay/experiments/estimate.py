"""How long a run may take, from a few timed steps."""

import time

import torch

from metareplay.benchmarks.base import TaskData
from metareplay.experiments.own_data import benchmark_for
from metareplay.heap import keep_freed_memory
from metareplay.learner.config import RunConfig
from metareplay.learner.learner import ContinualLearner

FEW = 256
"""Examples of each task that the timed steps see."""


def seconds_of_run(config: RunConfig, steps: int = 3) -> float:
    """An estimate of the seconds of training: steps of the second task (of the only one) times the number of steps of all tasks.

    Later tasks of some methods cost more than the second, and testing is left out.
    """
    torch.set_num_threads(config.threads)
    keep_freed_memory()  # as a run does
    benchmark = benchmark_for(config)
    tasks = list(benchmark[:2])
    total = sum(len(task.classes) for task in benchmark.task_infos()) or None
    timed = config.model_copy(update={"training": config.training.model_copy(update={"iterations": steps + 1, "epochs": None})})
    learner = ContinualLearner(timed, benchmark.problem, benchmark.scenario, benchmark.input_shape, total_outputs=total)
    each = 0.0
    for task in tasks:
        few = TaskData(task.train.x[:FEW], task.train.y[:FEW])
        width = len(task.classes) if benchmark.problem == "classification" else task.train.y.shape[1]
        trainer = iter(learner.begin_task(few, width, expected_tasks=len(benchmark)))
        next(trainer)  # warm-up
        began = time.perf_counter()
        for _ in range(steps):
            next(trainer)
        each = (time.perf_counter() - began) / steps
        for _ in trainer:  # what follows the last step
            pass
    batches = -(-len(tasks[0].train.x) // config.training.batch_size)
    length = config.training.iterations or batches * (config.training.epochs or 1)
    return each * length * len(benchmark)
