"""Benchmarks: streams of tasks."""

from metareplay.benchmarks.base import Benchmark, Problem, Scenario, Split, Task
from metareplay.benchmarks.images import split_images
from metareplay.benchmarks.registry import BENCHMARKS, BenchmarkInfo, build_benchmark
from metareplay.benchmarks.toy import modes_2d, regression_1d

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "BenchmarkInfo",
    "Problem",
    "Scenario",
    "Split",
    "Task",
    "build_benchmark",
    "modes_2d",
    "regression_1d",
    "split_images",
]
