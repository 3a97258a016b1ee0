"""The test data of the tasks so far, loaded on demand."""

from collections.abc import Sequence
from typing import overload

import torch

from metareplay.benchmarks.base import Benchmark, TaskData
from metareplay.seeding import generator_for


class TaskTests(Sequence[TaskData]):
    """Test data of a benchmark's first ``known`` tasks, at most ``limit`` inputs each; loaded on demand."""

    def __init__(self, benchmark: Benchmark, limit: int | None, seed: int) -> None:
        self.benchmark, self.limit, self.seed, self.known = benchmark, limit, seed, 0

    def __len__(self) -> int:
        return self.known

    @overload
    def __getitem__(self, index: int) -> TaskData: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[TaskData]: ...
    def __getitem__(self, index: int | slice) -> TaskData | Sequence[TaskData]:
        chosen = range(self.known)[index]  # raises IndexError like any sequence
        if not isinstance(chosen, int):
            return [self[task] for task in chosen]
        x, y = self.benchmark.test(chosen)
        if self.limit is None or self.limit >= len(x):
            return TaskData(x, y)
        order = torch.randperm(len(x), generator=generator_for(self.seed, "test inputs", chosen))
        rows = order[: self.limit].sort().values
        return TaskData(x[rows], y[rows])
