"""Benchmarks: streams of tasks."""

from metareplay.benchmarks.base import Benchmark, Problem, Scenario, Task, TaskData, TaskInfo
from metareplay.benchmarks.images import permute_images, split_images
from metareplay.benchmarks.own import own_benchmark
from metareplay.benchmarks.registry import BENCHMARKS, BenchmarkInfo, build_benchmark
from metareplay.benchmarks.settings import TaskSettings
from metareplay.benchmarks.streams import dataset_benchmark, stream_benchmark
from metareplay.benchmarks.toy import modes_2d, regression_1d

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "BenchmarkInfo",
    "Problem",
    "Scenario",
    "Task",
    "TaskData",
    "TaskInfo",
    "TaskSettings",
    "build_benchmark",
    "dataset_benchmark",
    "modes_2d",
    "own_benchmark",
    "permute_images",
    "regression_1d",
    "split_images",
    "stream_benchmark",
]
