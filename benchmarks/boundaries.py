"""Streams without boundaries: how soon new tasks are noticed, and what it costs not to be told.

python -m benchmarks.boundaries split-mnist --data-dir FOLDER [--seeds 3] [--detector window] [--signals strangeness]

Segments of training examples follow one another; some tasks return. Every figure is compared with a model that was
told the boundaries and learned the same number of examples of each task. Test inputs serve only the last comparison.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metareplay import ContinualClassifier
from metareplay.benchmarks.base import Benchmark, TaskData
from metareplay.benchmarks.registry import build_benchmark
from metareplay.seeding import generator_for

ORDER = (0, 1, 2, 0, 3, 1, 4, 2)
"""The tasks of the segments: three return."""
BATCH = 64


def segments(benchmark: Benchmark, length: int, seed: int) -> tuple[Tensor, list[Any]]:
    """The stream (N, ...) and its labels."""
    xs, labels = [], []
    for number, index in enumerate(ORDER):
        task = benchmark[index]
        rows = torch.randperm(len(task.train.x), generator=generator_for(seed, "segment", number))[:length]
        xs.append(task.train.x[rows])
        labels += [task.classes[int(label)] for label in task.train.y[rows]]
    return torch.cat(xs), labels


def batches(x: Tensor, labels: list[Any]) -> Iterator[tuple[Tensor, list[Any]]]:
    for start in range(0, len(x), BATCH):
        yield x[start : start + BATCH], labels[start : start + BATCH]


def accuracy(model: ContinualClassifier, benchmark: Benchmark, per_task: int) -> float:
    """Right labels in percent, the task inferred, over the tasks that were in the stream."""
    scores = []
    for index in sorted(set(ORDER)):
        test: TaskData = benchmark.test(index)
        classes = benchmark.task_infos()[index].classes
        labels = [classes[int(label)] for label in test.y[:per_task]]
        predicted = model.predict(test.x[:per_task]).tolist()
        scores.append(sum(a == b for a, b in zip(predicted, labels, strict=True)) / len(labels))
    return 100 * sum(scores) / len(scores)


def measure(benchmark: Benchmark, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One stream with unknown boundaries, and the same tasks with known ones."""
    settings = {"training.iterations": args.iterations, "inference.samples": 20}
    make = lambda: ContinualClassifier(network=args.network, seed=seed, settings=settings)  # noqa: E731
    stream: dict[str, Any] = {"grace": args.grace, "detector": args.detector, "window": args.window}
    if args.signals:
        stream["signals"] = tuple(args.signals)
    x, labels = segments(benchmark, args.length, seed)
    model = make()
    report = model.learn_stream(batches(x, labels), settings=stream)
    found = report.against([args.length * number for number in range(1, len(ORDER))])
    told = make()
    for index in sorted(set(ORDER)):
        start = args.length * ORDER.index(index)
        told.learn_task(x[start : start + args.grace], labels[start : start + args.grace])
    return {
        "seed": seed,
        "noticed": f"{len(found.delays)}/{len(ORDER) - 1}",
        "delay": sum(found.delays) / max(len(found.delays), 1),
        "longest_delay": max(found.delays, default=None),
        "false_alarms": found.false_alarms,
        "tasks": len(model.tasks),
        "recognised": [event.task for event in report.of("returned")],
        "accuracy": accuracy(model, benchmark, args.test),
        "accuracy_told": accuracy(told, benchmark, args.test),
    }


def main() -> None:
    """Print one line of JSON per seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=["split-digits", "split-mnist", "permuted-mnist-10"])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--network", default="mlp-100-100")
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--length", type=int, default=1500)
    parser.add_argument("--grace", type=int, default=1000)
    parser.add_argument("--window", type=int, default=20)
    parser.add_argument("--test", type=int, default=200)
    parser.add_argument("--detector", default="window", choices=["window", "adwin"])
    parser.add_argument("--signals", nargs="*")
    args = parser.parse_args()
    for seed in range(args.seeds):
        benchmark = build_benchmark(args.benchmark, data_dir=args.data_dir)
        print(json.dumps(measure(benchmark, seed, args)), flush=True)


if __name__ == "__main__":
    main()
