"""What task statistics cost over a hundred tasks, and how well tasks are told apart by them.

python -m benchmarks.statistics [--tasks 100] [--iterations 150]

CPU times of one thread. Two streams are learned, one of permuted and one of split inputs; replay regularises a few
random old tasks in each step, so that training itself takes as long in the last task as in the second.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import mean

import torch
from torch import Tensor

from benchmarks.prediction import percent, seconds
from metareplay.benchmarks.base import Benchmark, Scenario, Task, TaskData
from metareplay.benchmarks.images import permute_images
from metareplay.data.sources import load_digits
from metareplay.evaluation.evaluate import Evaluator
from metareplay.heap import keep_freed_memory
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner

MOMENTS = (10, 20, 50, 100)
"""Numbers of tasks after which everything is measured."""
CRITERIA = ("stats", "pca", "ent")
PER_TASK = 100
"""Test inputs of each task by which tasks are told apart."""
FIRST = 5
"""The tasks whose false rejections are followed."""
LAST = 5
"""Tasks over which seconds are averaged."""
COSTS = (
    "inputs",
    "tasks",
    "statistics of the newest task, kB",
    "taking them, s",
    "training the task, s",
    "predicting 1,000 inputs, s",
)
ANSWERS = (
    "inputs",
    "tasks",
    "right task, stats",
    "pca",
    "ent",
    "TGiven",
    "TGiven of tasks 1 to 5, learned → now",
    "their false rejections, learned → now",
)
SETTINGS = {
    "method": "pr-dirac-sr",
    "network": "mlp-100",
    "strategy.old_tasks": 4,
    "strategy.strength": 100.0,  # of 10, 100 and 1,000 best on held-out training inputs of 30 permuted tasks
    "hypernet.hidden": (100, 100),
    "hypernet.chunk_size": 2000,
    "training.batch_size": 64,
    "training.learning_rate": 0.001,
}


def permuted_digits(tasks: int) -> Benchmark:
    """Scikit-learn's digits, 64 inputs and 10 classes, in a new order of the inputs in each task."""
    return permute_images("permuted-digits", load_digits(), tasks, seed=0)


def split_inputs(tasks: int, *, features: int = 48, latent: int = 12, train: int = 600, test: int = 600) -> Benchmark:
    """Two new classes in each task: Gaussians that overlap in one space of few dimensions, bent and seen with noise."""
    seen = torch.randn(latent, features, generator=torch.Generator().manual_seed(0)) / latent**0.5

    def make_task(index: int) -> Task:
        generator = torch.Generator().manual_seed(index + 1)
        centres = torch.randn(2, latent, generator=generator)
        shapes = 0.8 * torch.randn(2, latent, latent, generator=generator) / latent**0.5

        def examples(count: int) -> TaskData:
            y = torch.arange(count) % 2
            noise = torch.randn(count, 1, latent, generator=generator)
            z = centres[y] + (noise @ shapes[y]).squeeze(1)  # (N, 1, latent) -> (N, latent)
            return TaskData(torch.tanh(z @ seen) + 0.3 * torch.randn(count, features, generator=generator), y)

        return Task(f"task-{index + 1}", examples(train), examples(test), (2 * index, 2 * index + 1))

    return Benchmark("split-inputs", "classification", Scenario.CLASS, (features,), tasks, make_task)


STREAMS: dict[str, Callable[[int], Benchmark]] = {"permuted": permuted_digits, "split": split_inputs}


@dataclass
class Stream:
    """A stream of tasks that is being learned."""

    name: str
    benchmark: Benchmark
    learner: ContinualLearner
    tests: list[TaskData] = field(default_factory=list)
    training: list[float] = field(default_factory=list)
    """Seconds of each task's training."""
    finishing: list[float] = field(default_factory=list)
    """Seconds that each task's statistics took."""
    rejected: list[Tensor] = field(default_factory=list)
    """Whether each test input of the first tasks was rejected when its task had just been learned."""
    given: list[float] = field(default_factory=list)
    """Accuracy of the first tasks, given the task, when they had just been learned."""

    @classmethod
    def of(cls, name: str, tasks: int, iterations: int) -> "Stream":
        """Before its first task."""
        benchmark = STREAMS[name](tasks)
        config = build_config({"benchmark": "custom"}, {**SETTINGS, "training.iterations": iterations}, "benchmarks")
        learner = ContinualLearner(config, benchmark.problem, benchmark.scenario, benchmark.input_shape)
        return cls(name, benchmark, learner)

    def learn(self, task: Task) -> None:
        """Train a task and take its statistics."""
        learner = self.learner
        trainer = learner.begin_task(task.train, len(task.classes), expected_tasks=len(self.benchmark))
        self.training.append(seconds(lambda: [None for _ in trainer]))
        self.finishing.append(seconds(lambda: learner.finish_task(task.train)))
        self.tests.append(task.test)
        if len(self.tests) <= FIRST:
            self.rejected.append(self.rejections(task.test.x))
            self.given.append(Evaluator(learner.predictor).given(len(self.tests) - 1, task.test))

    def rejections(self, x: Tensor) -> Tensor:
        """Whether each input is taken for unknown (N,)."""
        known = self.learner.predictor.predict(x).known
        assert known is not None
        return ~known

    def measured(self) -> tuple[list[str], list[str]]:
        """A row of costs and a row of answers."""
        predictor, tests = self.learner.predictor, [TaskData(*(part[:PER_TASK] for part in t)) for t in self.tests]
        x = torch.cat([test.x for test in tests])
        true = torch.repeat_interleave(torch.arange(len(tests)), torch.tensor([len(test.x) for test in tests]))
        correct, taken = {}, {}
        for name in CRITERIA:
            chosen: list[Tensor] = []
            taken[name] = seconds(partial(self._choose, name, x, chosen))
            correct[name] = percent(chosen[0] == true)
        given = [Evaluator(predictor).given(task, test) for task, test in enumerate(tests)]
        head = [self.name, str(len(tests))]
        costs = [
            f"{predictor.keeper.sizes()[-1] / 1000:,.0f}",
            f"{mean(self.finishing[-LAST:]):.2f}",
            f"{mean(self.training[-LAST:]):.2f}",
            f"{1000 * taken['stats'] / len(x):.2f}",
        ]
        return [*head, *costs], [*head, *correct.values(), f"{mean(given):.2f}", *self._first_tasks()]

    def _choose(self, criterion: str, x: Tensor, chosen: list[Tensor]) -> None:
        chosen.append(self.learner.predictor.predict(x, criterion=criterion).task)

    def _first_tasks(self) -> tuple[str, str]:
        """Accuracy and false rejections of the first tasks, when each was learned and now."""
        evaluator, tests = Evaluator(self.learner.predictor), self.tests[:FIRST]
        given = mean(evaluator.given(task, test) for task, test in enumerate(tests))
        now, then = torch.cat([self.rejections(test.x) for test in tests]), torch.cat(self.rejected)
        change = 100 * (now.double() - then.double())  # of each input
        error = float(change.std()) / len(change) ** 0.5
        return (
            f"{mean(self.given):.2f} → {given:.2f}",
            f"{percent(then)} → {percent(now)} (change ± {error:.2f})",
        )


def rows(name: str, tasks: int, iterations: int) -> list[tuple[list[str], list[str]]]:
    """Costs and answers of one stream, as it grows."""
    stream, measured = Stream.of(name, tasks, iterations), []
    for task in stream.benchmark:
        stream.learn(task)
        if len(stream.tests) in (*MOMENTS, tasks):
            measured.append(stream.measured())
            print(*measured[-1], file=sys.stderr, flush=True)
    return measured


def markdown(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *cells))


def table(tasks: int = 100, iterations: int = 150) -> str:
    """Both tables: costs, and how well tasks are told apart."""
    torch.set_num_threads(1)
    keep_freed_memory()  # as a run does
    costs, answers = zip(*(row for name in STREAMS for row in rows(name, tasks, iterations)), strict=True)
    return f"{markdown(COSTS, costs)}\n\n{markdown(ANSWERS, answers)}"


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=150)
    asked = parser.parse_args()
    print(table(asked.tasks, asked.iterations))


if __name__ == "__main__":
    main()
