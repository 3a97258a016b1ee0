"""Labels beyond tasks: which label was taken for which, and what guessing would reach."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from metareplay.benchmarks.base import Benchmark, Scenario, TaskData, label_columns
from metareplay.experiments.results import Chance, LabelFigures
from metareplay.inference.mixing import by_label
from metareplay.inference.predictor import AnyPredictor, ClassPredictor
from metareplay.seeding import generator_for

MOST_INPUTS = 5_000
"""Test inputs whose labels are compared, in all."""
MOST_LABELS = 200

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Labels:
    """The labels of all tasks, each once; tasks may share them."""

    names: list[str]
    by_task: list[Numbers]
    """For each task, the numbers of its classes."""

    @classmethod
    def of(cls, benchmark: Benchmark) -> "Labels":
        """Of a benchmark; empty for regression."""
        infos = benchmark.task_infos()
        names, columns = label_columns(infos)
        by_task = np.split(np.array(columns, dtype=np.int64), np.cumsum([len(info.classes) for info in infos])[:-1])
        return cls([str(name) for name in names], by_task)

    def numbers(self, task: int, y: Tensor) -> Numbers:
        """Class indices of a task as numbers of labels (N,)."""
        return self.by_task[task][y.numpy()]


def label_figures(
    predictor: AnyPredictor, benchmark: Benchmark, tests: Sequence[TaskData], *, seed: int
) -> LabelFigures | None:
    """Which label test inputs get, with the task inferred if it is unknown at test time; None for regression."""
    labels = Labels.of(benchmark)
    if not isinstance(predictor, ClassPredictor) or not 2 <= len(labels.names) <= MOST_LABELS:
        return None
    columns = torch.from_numpy(np.concatenate(labels.by_task))  # the label of each column of an answer
    given = predictor.scenario is Scenario.TASK
    counts = np.zeros((len(labels.names), len(labels.names)), dtype=np.int64)
    for task, (x, y) in enumerate(tests):
        rows = _compared(len(x), max(MOST_INPUTS // len(tests), 1), generator_for(seed, "labels", task))
        answered = predictor.calibrated and predictor.remembers(x)  # all of them
        asked = x if rows is None or answered else x[rows]
        answer = predictor.predict(asked, task if given or predictor.one_answer else None, labels=columns)
        chosen = by_label(answer.probabilities, columns).argmax(1)  # (N, C) -> (N,)
        if rows is not None:
            y, chosen = y[rows], chosen[rows] if answered else chosen
        np.add.at(counts, (labels.numbers(task, y), chosen.numpy()), 1)
    return LabelFigures(labels=labels.names, confusion=counts.tolist(), task_known=given)


def _compared(count: int, most: int, generator: Generator) -> Tensor | None:
    """Of so many inputs those whose labels are compared, in order; None: all."""
    return torch.randperm(count, generator=generator)[:most].sort().values if count > most else None


def chance(benchmark: Benchmark, tests: Sequence[TaskData]) -> Chance:
    """What one and the same answer would reach: the most frequent label, or the mean target, of the test inputs."""
    if benchmark.problem == "regression":
        scale = benchmark.scaling.tensors.get("y_scale")
        targets = [y.double() if scale is None else y.double() * scale for _, y in tests]
        middle = torch.stack([y.mean(0) for y in targets]).mean(0)  # (T, D) -> (D,)
        known = [float((y - y.mean(0)).square().mean()) for y in targets]
        return Chance(
            known=_mean(known), inferred=_mean([float((y - middle).square().mean()) for y in targets]), by_task=known
        )
    labels = Labels.of(benchmark)
    shares = np.stack(  # (T, labels)
        [
            np.bincount(labels.numbers(task, y), minlength=len(labels.names)) / len(y)
            for task, (_, y) in enumerate(tests)
        ]
    )
    by_task = (100.0 * shares.max(1)).tolist()
    return Chance(known=_mean(by_task), inferred=float(100.0 * shares.mean(0).max()), by_task=by_task)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
