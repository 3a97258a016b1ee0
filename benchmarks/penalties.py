"""What the divergences of Gaussian posteriors cost on permuted-mnist-10, and what is forgotten if less is computed.

python -m benchmarks.penalties --data-dir FOLDER [--iterations 500]

CPU times of one thread; fine-tuning steps are timed before and after the last task, so that other load on the machine
has little effect.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.prediction import seconds
from metareplay.benchmarks.base import Benchmark, TaskData
from metareplay.benchmarks.registry import build_benchmark
from metareplay.evaluation.evaluate import Evaluator, during, final
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.recipe_book import default_settings

STRENGTHS = {"w2": 50.0, "fkl": 1.0, "rkl": 1.0}
"""Of w2 as published for this network; of the others as published for the larger one (fkl), or the same."""
WAYS: dict[str, dict[str, object]] = {
    "all old tasks, each step": {},
    "the same, targets recomputed": {"strategy.targets": "recomputed"},
    "one random old task a step": {"strategy.old_tasks": 1},
    "all old tasks, each 4th step": {"strategy.penalty_every": 4},
    "one random old task, each 4th step": {"strategy.old_tasks": 1, "strategy.penalty_every": 4},
    "all old tasks, each step, network in bfloat16": {"training.autocast": True},
    "no penalty": {"strategy.strength": 0.0},
}
LEARNING_RATE = 0.001
"""Ten times the published one, for a tenth of its iterations."""
INPUTS = 1_000
"""Test inputs of each task."""


def learner_of(benchmark: Benchmark, method: str, given: dict[str, object], iterations: int) -> ContinualLearner:
    """A learner with the published settings for MLP-100,100, and those given."""
    defaults, _ = default_settings("permuted-mnist-10", method, "mlp-100-100", published=True)
    short = {"training.iterations": iterations, "training.learning_rate": LEARNING_RATE}
    config = build_config(defaults, {**short, **given}, "benchmarks")
    return ContinualLearner(config, benchmark.problem, benchmark.scenario, benchmark.input_shape)


def fine_tuning_steps(benchmark: Benchmark) -> Iterator[object]:
    """Steps of the same network without any memory."""
    learner = learner_of(benchmark, "fine-tuning", {"training.batch_size": 128}, 10**9)
    return iter(learner.begin_task(benchmark[0].train, 10))


def measure(benchmark: Benchmark, penalty: str, way: str, iterations: int) -> str:
    """A row of the table."""
    given = {"strategy.penalty": penalty, "strategy.strength": STRENGTHS[penalty], "inference.samples": 5, **WAYS[way]}
    learner, steps = learner_of(benchmark, "pr-bbb", given, iterations), fine_tuning_steps(benchmark)
    tests: list[TaskData] = []
    matrix, cost = [], 0.0
    judge = Evaluator(learner.predictor)
    for task in benchmark:
        trainer = learner.begin_task(task.train, 10)
        tests.append(TaskData(task.test.x[:INPUTS], task.test.y[:INPUTS]))
        before = seconds(lambda: [next(steps) for _ in range(100)])
        taken = seconds(lambda trainer=trainer: [None for _ in trainer])
        cost = (taken / iterations) / ((before + seconds(lambda: [next(steps) for _ in range(100)])) / 200)
        last = len(tests) == len(benchmark)
        matrix.append(
            [judge.given(old, tests[old]) if last or old == len(tests) - 1 else 0.0 for old in range(len(tests))]
        )
    forgotten = during(matrix) - final(matrix)
    return f"| {penalty} | {way} | {cost:.2f} | {during(matrix):.2f} | {final(matrix):.2f} | {forgotten:.2f} |"


def table(data_dir: str | None, iterations: int = 500) -> str:
    """All rows."""
    torch.set_num_threads(1)
    benchmark = build_benchmark("permuted-mnist-10", data_dir=None if data_dir is None else Path(data_dir))
    lines = [
        "| penalty | computed | fine-tuning steps, task 10 | TGiven-During | TGiven-Final | forgotten |",
        "|---|---|---|---|---|---|",
    ]
    for penalty in STRENGTHS:
        for way in WAYS:
            if way == "no penalty" and penalty != "w2":
                continue
            lines.append(measure(benchmark, penalty, way, iterations))
            print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", default=os.environ.get("METAREPLAY_DATA"))
    parser.add_argument("--iterations", type=int, default=500)
    asked = parser.parse_args()
    table(asked.data_dir, asked.iterations)


if __name__ == "__main__":
    main()
