"""Every registered benchmark is what its entry says."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from metareplay.benchmarks.registry import BENCHMARKS, BenchmarkInfo, build_benchmark
from metareplay.benchmarks.toy import DATA_SEED
from metareplay.errors import ConfigError, DataError


def _data_dir(info: BenchmarkInfo, request: pytest.FixtureRequest) -> Path | None:
    """None where the benchmark has its data in itself; the real MNIST otherwise."""
    return request.getfixturevalue("mnist_dir") if info.needs_data else None


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_entry_says_what_is_built(name: str, request: pytest.FixtureRequest) -> None:
    info = BENCHMARKS[name]
    benchmark = build_benchmark(name, data_dir=_data_dir(info, request))
    assert (info.name, info.problem, info.scenario) == (benchmark.name, benchmark.problem, benchmark.scenario)
    assert (info.num_tasks, info.input_shape) == (len(benchmark), benchmark.input_shape)
    names = [task.name for task in benchmark]
    assert len(set(names)) == info.num_tasks
    for task in benchmark:
        for split in (task.train, task.test):
            assert split.x.shape[1:] == info.input_shape
            assert split.x.dtype == torch.float32
            assert split.x.isfinite().all()
            if info.problem == "classification":
                assert split.y.dtype == torch.int64
                assert split.y.unique().tolist() == list(range(len(task.classes)))
            else:
                assert split.y.dtype == torch.float32
                assert split.y.ndim == 2
                assert task.classes == ()


@pytest.mark.parametrize("info", BENCHMARKS.values(), ids=list(BENCHMARKS))
def test_every_entry_is_complete(info: BenchmarkInfo) -> None:
    assert info.description.endswith(".")
    assert "\n" not in info.description
    kind, *widths = info.default_network.split("-")
    assert kind == "mlp"
    assert all(width.isdecimal() for width in widths)


def test_the_data_seed_reaches_the_generated_benchmarks() -> None:
    for name in ("regression-1d", "modes-2d"):
        default = build_benchmark(name)[0].train.x
        same, other = (build_benchmark(name, data_seed=seed)[0].train.x for seed in (DATA_SEED, DATA_SEED + 1))
        assert torch.equal(default, same)
        assert not torch.equal(default, other)


def test_the_data_folder_reaches_the_reader(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        build_benchmark("split-mnist", data_dir=tmp_path / "nowhere")


@pytest.mark.parametrize(("name", "near"), [("split-minst", "split-mnist"), ("modes2d", "modes-2d"), ("Regression-1D", "regression-1d")])
def test_an_unknown_name_lists_the_known_ones_and_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=rf"'{name}' is unknown; choose one of {', '.join(BENCHMARKS)}; did you mean '{near}'\?$"):
        build_benchmark(name)


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    with pytest.raises(ConfigError, match=rf"'qqq' is unknown; choose one of {', '.join(BENCHMARKS)}$"):
        build_benchmark("qqq")


def test_importing_the_registry_is_light() -> None:
    heavy = ("sklearn", "datasets", "huggingface_hub", "PIL")
    code = f"import sys, metareplay.benchmarks.registry; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
