"""Every registered benchmark is what its entry says."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from metareplay.benchmarks import images
from metareplay.benchmarks.base import Benchmark
from metareplay.benchmarks.registry import BENCHMARKS, BenchmarkInfo, build_benchmark
from metareplay.benchmarks.settings import TaskSettings
from metareplay.benchmarks.toy import DATA_SEED, PUBLISHED_SEED
from metareplay.data.base import LabelledImages
from metareplay.errors import ConfigError, DataError
from metareplay.nets.registry import network_part


@pytest.fixture
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small random images in place of those that have to be found or downloaded."""
    for name, shape, count in (
        ("mnist", (1, 28, 28), 10),
        ("cifar10", (3, 32, 32), 10),
        ("cifar100", (3, 32, 32), 100),
    ):
        x, y = torch.randint(256, (3 * count, *shape), dtype=torch.uint8), torch.arange(count).repeat(3)
        small = LabelledImages(x, y, x[: 2 * count], y[: 2 * count])
        monkeypatch.setattr(images, f"load_{name}", lambda _, small=small: small)


def check_built(info: BenchmarkInfo, benchmark: Benchmark) -> None:
    assert (info.name, info.problem, info.scenario) == (benchmark.name, benchmark.problem, benchmark.scenario)
    assert (info.num_tasks, info.input_shape) == (len(benchmark), benchmark.input_shape)
    assert len({outline.name for outline in benchmark.task_infos()}) == info.num_tasks
    for index, task in ((index, benchmark[index]) for index in range(0, len(benchmark), 1 + len(benchmark) // 10)):
        assert benchmark.task_infos()[index] == (task.name, task.classes)
        assert torch.equal(benchmark.test(index).x, task.test.x)
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


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_entry_says_what_is_built(name: str, small_sets: None) -> None:
    check_built(BENCHMARKS[name], build_benchmark(name))


@pytest.mark.slow
def test_so_it_does_with_the_real_mnist(mnist_dir: Path) -> None:
    for name in ("split-mnist", "permuted-mnist-10", "permuted-mnist-100"):  # the files are decoded once
        check_built(replace(BENCHMARKS[name], num_tasks=2), build_benchmark(name, data_dir=mnist_dir)[:2])


@pytest.mark.slow
def test_so_it_does_with_the_real_cifar(mnist_dir: Path) -> None:
    folder = mnist_dir.parent / "cifar10"
    if not folder.is_dir():
        pytest.skip(f"{folder.name} is not at hand")
    benchmark = build_benchmark("split-cifar-10", data_dir=folder)[:2]
    check_built(replace(BENCHMARKS["split-cifar-10"], num_tasks=2), benchmark)
    assert benchmark[0].train.x.mean().abs() < 0.3  # two of ten classes: about standardised
    assert (benchmark[0].train.x.std() - 1).abs() < 0.2


SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("split-digits", {"classes_per_task": 5, "class_order": "seeded", "scenario": "domain"}),
    ("split-mnist", {"classes_per_task": 2, "class_order": tuple(range(9, -1, -1)), "scenario": "task"}),
    ("split-cifar-100", {"classes_per_task": 20}),
    ("permuted-mnist-10", {"padding": 2, "scenario": "class"}),
    ("permuted-mnist-100", {"padding": 1}),
    ("modes-2d", {"scenario": "task"}),
    ("regression-1d", {"scenario": "task"}),
]


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_settings_of_tasks_reach_the_benchmark_and_its_entry(
    name: str, settings: dict[str, Any], small_sets: None
) -> None:
    tasks = TaskSettings(**settings)
    check_built(BENCHMARKS[name].with_settings(tasks), build_benchmark(name, tasks=tasks))


SENSELESS: list[tuple[str, dict[str, Any], str]] = [
    ("split-digits", {"padding": 2}, "tasks.padding has no effect with split-digits: its pixels are not permuted"),
    ("split-digits", {"classes_per_task": 3}, "10 classes cannot be split into tasks of 3"),
    ("permuted-mnist-10", {"classes_per_task": 2}, "its classes are not divided"),
    ("modes-2d", {"class_order": "seeded"}, "its classes are not divided"),
    ("regression-1d", {"scenario": "class"}, "regression has no classes"),
]


@pytest.mark.parametrize(("name", "settings", "reason"), SENSELESS)
def test_settings_without_effect_are_refused(name: str, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        build_benchmark(name, tasks=TaskSettings(**settings))


@pytest.mark.parametrize("info", BENCHMARKS.values(), ids=list(BENCHMARKS))
def test_every_entry_is_complete(info: BenchmarkInfo) -> None:
    assert info.description.endswith(".")
    assert "\n" not in info.description
    network_part(info.default_network)


def test_the_data_seed_reaches_the_generated_benchmarks() -> None:
    for name in ("regression-1d", "modes-2d"):
        default = build_benchmark(name)[0].train.x
        same, other = (build_benchmark(name, data_seed=seed)[0].train.x for seed in (PUBLISHED_SEED, DATA_SEED))
        assert torch.equal(default, same)
        assert not torch.equal(default, other)


def test_the_data_folder_reaches_the_reader(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        build_benchmark("split-mnist", data_dir=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "near"), [("split-minst", "split-mnist"), ("modes2d", "modes-2d"), ("Regression-1D", "regression-1d")]
)
def test_an_unknown_name_lists_the_known_ones_and_the_nearest(name: str, near: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"'{name}' is unknown; choose one of {', '.join(BENCHMARKS)}; did you mean '{near}'\?$"
    ):
        build_benchmark(name)


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    with pytest.raises(ConfigError, match=rf"'qqq' is unknown; choose one of {', '.join(BENCHMARKS)}$"):
        build_benchmark("qqq")


def test_importing_the_registry_is_light() -> None:
    heavy = ("sklearn", "datasets", "huggingface_hub", "PIL")
    code = f"import sys, metareplay.benchmarks.registry; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
