"""A benchmark's tasks in one file, so that processes share what one of them has read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from metareplay.benchmarks.base import Benchmark, Scenario, Task, TaskData, TaskInfo
from metareplay.errors import DataError
from metareplay.files import write_atomically
from metareplay.scaling import Scaling
from metareplay.texts import read_json


def store_benchmark(path: Path, benchmark: Benchmark) -> Path:
    """Write all tasks, ready to be learned."""
    tensors = {f"scaling.{name}": tensor for name, tensor in benchmark.scaling.tensors.items()}
    for index, task in enumerate(benchmark):
        for part, (x, y) in (("train", task.train), ("test", task.test)):
            tensors |= {f"{index}.{part}.x": x, f"{index}.{part}.y": y}
    facts = {
        "name": benchmark.name,
        "problem": benchmark.problem,
        "scenario": benchmark.scenario.value,
        "input_shape": list(benchmark.input_shape),
        "tasks": [[task.name, list(task.classes)] for task in benchmark.task_infos()],
        "inputs": dict(benchmark.inputs),
        "notes": list(benchmark.notes),
        "fingerprint": benchmark.fingerprint,
    }
    content = save({name: tensor.contiguous() for name, tensor in tensors.items()}, {"facts": json.dumps(facts)})
    return write_atomically(path, content)


def load_benchmark(path: Path, fingerprint: str | None) -> Benchmark:
    """The benchmark in a file, if it has this fingerprint; a task's data is in memory only while it is used."""
    try:
        file = safe_open(path, "pt")
        facts = read_json(file.metadata()["facts"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"the tasks in {path} cannot be read ({error}); start the run again") from error
    if facts["fingerprint"] != fingerprint:
        both = f"fingerprint {facts['fingerprint']}, not {fingerprint}"
        raise DataError(f"{path} does not hold the run's data ({both}); start the run again")
    return _benchmark(file, facts)


def _benchmark(file: Any, facts: Mapping[str, Any]) -> Benchmark:
    infos = [TaskInfo(name, tuple(classes)) for name, classes in facts["tasks"]]

    def tensor(name: str) -> Tensor:
        return Tensor.clone(file.get_tensor(name))  # aligned like any other tensor, so that sums round the same

    def data(index: int, part: str) -> TaskData:
        return TaskData(tensor(f"{index}.{part}.x"), tensor(f"{index}.{part}.y"))

    def task(index: int) -> Task:
        return Task(infos[index].name, data(index, "train"), data(index, "test"), infos[index].classes)

    names = [name for name in file.keys() if name.startswith("scaling.")]  # noqa: SIM118
    scaling = {name.removeprefix("scaling."): tensor(name) for name in names}
    return Benchmark(
        facts["name"],
        facts["problem"],
        Scenario(facts["scenario"]),
        tuple(facts["input_shape"]),
        len(infos),
        task,
        lambda index: data(index, "test"),
        infos.__getitem__,
        Scaling(scaling),
        facts["inputs"],
        facts["fingerprint"],
        tuple(facts["notes"]),
    )
