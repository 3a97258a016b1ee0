"""Tasks in a file: the same benchmark for another process."""

from pathlib import Path

import pytest
import torch

from metareplay.benchmarks import stream_benchmark
from metareplay.benchmarks.base import Benchmark
from metareplay.benchmarks.stored import load_benchmark, store_benchmark
from metareplay.errors import DataError


def stream(problem: str) -> Benchmark:
    x = torch.arange(24.0).view(12, 2)
    if problem == "regression":
        return stream_benchmark([(x, x.sum(1, keepdim=True)), (x + 1, x.sum(1, keepdim=True))], problem="regression")
    labels = [["ape", "bee"], [3, 4, 5]]
    return stream_benchmark([(x, [names[i % len(names)] for i in range(12)]) for names in labels])


@pytest.mark.parametrize("problem", ["classification", "regression"])
def test_a_stored_benchmark_is_the_same(problem: str, tmp_path: Path) -> None:
    before = stream(problem)
    after = load_benchmark(store_benchmark(tmp_path / "tasks", before), before.fingerprint)
    for name in ("name", "problem", "scenario", "input_shape", "num_tasks", "inputs", "fingerprint", "notes"):
        assert getattr(after, name) == getattr(before, name)
    assert after.task_infos() == before.task_infos()
    assert after.scaling.tensors.keys() == before.scaling.tensors.keys()
    assert all(torch.equal(tensor, after.scaling.tensors[name]) for name, tensor in before.scaling.tensors.items())
    for index, task in enumerate(before):
        assert after[index].classes == task.classes
        pairs = [*zip(after[index].train, task.train, strict=True), *zip(after.test(index), task.test, strict=True)]
        assert all(torch.equal(*pair) and pair[0].dtype == pair[1].dtype for pair in pairs)


def test_a_task_can_be_changed_without_changing_the_file(tmp_path: Path) -> None:
    before = stream("classification")
    after = load_benchmark(store_benchmark(tmp_path / "tasks", before), before.fingerprint)
    after[0].train.x.zero_()
    assert torch.equal(after[0].train.x, before[0].train.x)


def test_other_data_and_damaged_files_are_refused(tmp_path: Path) -> None:
    path = store_benchmark(tmp_path / "tasks", stream("classification"))
    with pytest.raises(DataError, match="does not hold the run's data"):
        load_benchmark(path, "0123456789abcdef")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="cannot be read"):
        load_benchmark(path, stream("classification").fingerprint)
    with pytest.raises(DataError, match="cannot be read"):
        load_benchmark(tmp_path / "none", None)
