"""The test data of the tasks so far, made when asked for."""

from collections.abc import Sequence
from typing import overload

import torch

from metareplay.benchmarks.base import Benchmark, Split
from metareplay.seeding import generator_for


class HeldOut(Sequence[Split]):
    """Test data of a benchmark's first ``known`` tasks; only what is asked for is in memory, and of that at most ``limit`` inputs."""

    def __init__(self, benchmark: Benchmark, limit: int | None, seed: int) -> None:
        self.benchmark, self.limit, self.seed, self.known = benchmark, limit, seed, 0

    def __len__(self) -> int:
        return self.known

    @overload
    def __getitem__(self, index: int) -> Split: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Split]: ...
    def __getitem__(self, index: int | slice) -> Split | Sequence[Split]:
        chosen = range(self.known)[index]  # raises IndexError like any sequence
        if not isinstance(chosen, int):
            return [self[each] for each in chosen]
        x, y = self.benchmark.test(chosen)
        if self.limit is None or self.limit >= len(x):
            return Split(x, y)
        rows = torch.randperm(len(x), generator=generator_for(self.seed, "test inputs", chosen))[: self.limit].sort().values
        return Split(x[rows], y[rows])
