"""All benchmarks by name: what they are, and how to build one."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from metareplay.benchmarks.base import Benchmark, Problem, Scenario
from metareplay.benchmarks.images import split_digits, split_mnist
from metareplay.benchmarks.toy import DATA_SEED, modes_2d, regression_1d
from metareplay.errors import ConfigError

Builder = Callable[[int, Path | None], Benchmark]


@dataclass(frozen=True, kw_only=True)
class BenchmarkInfo:
    """What can be said of a benchmark without loading its data."""

    name: str
    description: str
    problem: Problem
    scenario: Scenario
    num_tasks: int
    input_shape: tuple[int, ...]
    default_network: str
    needs_data: bool
    """Whether a data set has to be found or downloaded first."""
    build: Builder
    """Takes the data seed and the data folder, and ignores what it does not need."""


_ALL = (
    BenchmarkInfo(
        name="regression-1d",
        description="Three polynomials on neighbouring stretches of the real line, 20 noisy samples each.",
        problem="regression",
        scenario=Scenario.DOMAIN,
        num_tasks=3,
        input_shape=(1,),
        default_network="mlp-10-10",
        needs_data=False,
        build=lambda seed, _: regression_1d(seed),
    ),
    BenchmarkInfo(
        name="modes-2d",
        description="Six Gaussian modes on a circle in the plane, two per task, 10 samples each.",
        problem="classification",
        scenario=Scenario.CLASS,
        num_tasks=3,
        input_shape=(2,),
        default_network="mlp-10-10",
        needs_data=False,
        build=lambda seed, _: modes_2d(seed),
    ),
    BenchmarkInfo(
        name="split-digits",
        description="Scikit-learn's 1,797 embedded 8x8 digits, two digits per task.",
        problem="classification",
        scenario=Scenario.CLASS,
        num_tasks=5,
        input_shape=(1, 8, 8),
        default_network="mlp-100-100",
        needs_data=False,
        build=lambda _, __: split_digits(),
    ),
    BenchmarkInfo(
        name="split-mnist",
        description="MNIST's 70,000 handwritten digits, two digits per task.",
        problem="classification",
        scenario=Scenario.CLASS,
        num_tasks=5,
        input_shape=(1, 28, 28),
        default_network="mlp-400-400",
        needs_data=True,
        build=lambda _, data_dir: split_mnist(data_dir),
    ),
)

BENCHMARKS: dict[str, BenchmarkInfo] = {info.name: info for info in _ALL}


def benchmark_named(name: str) -> BenchmarkInfo:
    """What is known of a benchmark, by its name."""
    if name not in BENCHMARKS:
        near = difflib.get_close_matches(name, BENCHMARKS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"benchmark {name!r} is unknown; choose one of {', '.join(BENCHMARKS)}{hint}")
    return BENCHMARKS[name]


def build_benchmark(name: str, *, data_seed: int = DATA_SEED, data_dir: Path | None = None) -> Benchmark:
    """Build a benchmark by name; ``data_seed`` matters to the generated ones, ``data_dir`` to those that need data."""
    return benchmark_named(name).build(data_seed, data_dir)
