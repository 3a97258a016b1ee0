"""Benchmarks: streams of tasks."""

from metareplay.benchmarks.base import Benchmark, Outline, Problem, Scenario, Split, Task
from metareplay.benchmarks.images import permute_images, split_images
from metareplay.benchmarks.registry import BENCHMARKS, BenchmarkInfo, build_benchmark
from metareplay.benchmarks.settings import TaskSettings
from metareplay.benchmarks.toy import modes_2d, regression_1d

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "BenchmarkInfo",
    "Outline",
    "Problem",
    "Scenario",
    "Split",
    "Task",
    "TaskSettings",
    "build_benchmark",
    "modes_2d",
    "permute_images",
    "regression_1d",
    "split_images",
]
