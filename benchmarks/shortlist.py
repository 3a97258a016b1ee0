"""What a short list of tasks costs and saves over a hundred tasks: beside all pairs, on the same networks.

python -m benchmarks.shortlist permuted|split [--tasks 100] [--iterations 30] [--lists 0,16,32]

The streams and settings are those of ``benchmarks.statistics``, with fewer iterations. Everything is measured on a
tenth of each task's training inputs, which neither training nor its calibration sees. CPU times of one thread.
"""

import argparse
from dataclasses import dataclass, field
from statistics import mean

import torch
from torch import Tensor

from benchmarks.prediction import percent, seconds
from benchmarks.statistics import LAST, SETTINGS, STREAMS, markdown
from metareplay.benchmarks.base import TaskData
from metareplay.heap import keep_freed_memory
from metareplay.inference.criteria.base import Comparison, Evidence
from metareplay.inference.criteria.densities import stats
from metareplay.inference.statistics.keeper import StatisticsKeeper
from metareplay.inference.task_statistics import TaskStatistics
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner

MOMENTS = (10, 40, 70, 100)
"""Numbers of tasks after which everything is measured."""
PER_TASK = 20
"""Held-out inputs of each task by which tasks are told apart."""
HEADERS = (
    *("inputs", "tasks", "compared in pairs", "statistics of the newest task, kB", "taking them, s"),
    *("inferring the task of 1,000 inputs, s", "right task, held out", "-log p of the right task"),
)


@dataclass
class Way:
    """Statistics that are taken with a length of the short list."""

    name: str
    keeper: StatisticsKeeper
    taking: list[float] = field(default_factory=list)
    """Seconds that each task's statistics took."""

    @classmethod
    def of(cls, learner: ContinualLearner, most: int) -> "Way":
        """For a learner without tasks; 0: no list."""
        settings = learner.config.statistics.model_copy(update={"shortlist": most or 10**6})
        keeper = StatisticsKeeper(
            learner.model,
            settings,
            TaskStatistics(),
            problem=learner.problem,
            seed=0,
            batch_size=learner.config.inference.batch_size,
        )
        return cls(str(most) if most else "all", keeper)

    def scores(self, x: Tensor, result: list[Tensor]) -> None:
        """Adds the scores of all tasks (T, N), and their probabilities (N, T)."""
        evidence = self.keeper.evidence(x, distances=False, outputs=False)
        combination = self.keeper.combination(evidence)
        comparison = Comparison(evidence, combination, self.keeper.stored())
        scores = stats(Evidence((), self.keeper.model.heads, self.keeper.settings, comparison=comparison))
        result += [scores, combination.probabilities(scores)]

    def row(self, x: Tensor, true: Tensor) -> list[str]:
        """What is measured after some tasks."""
        result: list[Tensor] = []
        self.keeper.evidence(x[:2], distances=False)  # what is prepared once
        taken = seconds(lambda: self.scores(x, result))
        scores, probabilities = result
        surprise = -probabilities[torch.arange(len(x)), true].log().mean()
        return [
            self.name,
            f"{self.keeper.sizes()[-1] / 1000:,.0f}",
            f"{mean(self.taking[-LAST:]):.2f}",
            f"{1000 * taken / len(x):.2f}",
            percent(scores.argmin(0) == true),
            f"{float(surprise):.3f}",
        ]


def apart(data: TaskData, task: int) -> tuple[TaskData, Tensor]:
    """Nine tenths of the examples, and some inputs of the rest."""
    order = torch.randperm(len(data.x), generator=torch.Generator().manual_seed(task))
    rest, held_out = order[len(order) // 10 :], order[: len(order) // 10]
    return TaskData(data.x[rest], data.y[rest]), data.x[held_out][:PER_TASK]


def rows(name: str, tasks: int, iterations: int, lists: list[int]) -> list[list[str]]:
    """Of one stream, as it grows."""
    benchmark, measured = STREAMS[name](tasks), []
    config = build_config({"benchmark": "custom"}, {**SETTINGS, "training.iterations": iterations}, "benchmarks")
    learner = ContinualLearner(config, benchmark.problem, benchmark.scenario, benchmark.input_shape)
    ways, held_out = [Way.of(learner, most) for most in lists], []
    for index, task in enumerate(benchmark):
        train, x = apart(task.train, index)
        held_out.append(x)
        trainer = learner.begin_task(train, len(task.classes), expected_tasks=tasks)
        for way in ways:
            way.keeper.before_training()
        for _ in trainer:
            pass
        used, calibration = learner._split(index, train)
        for way in ways:
            way.taking.append(seconds(lambda way=way: way.keeper.after_task(index, used, calibration)))  # type: ignore[misc]  # noqa: B023
        if index + 1 in (*MOMENTS, tasks):
            x = torch.cat(held_out)
            true = torch.repeat_interleave(torch.arange(index + 1), torch.tensor([len(part) for part in held_out]))
            for way in ways:
                measured.append([name, str(index + 1), *way.row(x, true)])
                print(*measured[-1], flush=True)
    return measured


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("stream", choices=STREAMS)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--lists", type=lambda text: [int(part) for part in text.split(",")], default=[0, 16, 32])
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    print(markdown(HEADERS, rows(given.stream, given.tasks, given.iterations, given.lists)))


if __name__ == "__main__":
    main()
