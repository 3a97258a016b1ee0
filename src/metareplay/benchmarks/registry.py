"""All benchmarks by name: what they are, and how to build one."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from metareplay.benchmarks.base import Benchmark, Problem, Scenario
from metareplay.benchmarks.images import permuted_mnist, split_cifar10, split_cifar100, split_digits, split_mnist
from metareplay.benchmarks.settings import DEFAULT_TASKS, TaskSettings
from metareplay.benchmarks.toy import DATA_SEED, PUBLISHED_SEED, modes_2d, regression_1d
from metareplay.benchmarks.validation import refuse_missing_tasks, with_protocol
from metareplay.errors import ConfigError

Builder = Callable[[int, Path | None, TaskSettings], Benchmark]
Kind = Literal["generated", "split", "permuted"]
KIND_SETTINGS: dict[Kind, tuple[str, ...]] = {
    "generated": (),
    "split": ("classes_per_task", "class_order"),
    "permuted": ("padding", "first_unpermuted"),
}
"""The task settings that apply to a kind of benchmark, besides those that apply to all."""
ANY_KIND = ("scenario", "first", "validation")


@dataclass(frozen=True, kw_only=True)
class BenchmarkInfo:
    """What is known about a benchmark without loading its data."""

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
    """Takes the data seed, the data folder and the task settings, and ignores what it does not need."""
    kind: Kind = "generated"
    num_classes: int = 0
    """Total number of classes of a split data set."""
    augmentation: str = "none"
    """How training inputs are augmented unless a setting says otherwise."""
    data_seed: int = DATA_SEED
    """The data seed unless a setting says otherwise."""
    colours: bool = False
    """Whether colours are standardised."""
    published: Mapping[str, Any] = field(default_factory=dict)
    """What the published runs did differently, for ``--published``."""

    def uses_seed(self, settings: TaskSettings) -> bool:
        """Whether the data seed matters."""
        drawn = settings.class_order in ("seeded", "hardest", "median", "easiest")
        return self.kind != "split" or drawn or settings.validation > 0

    def with_settings(self, settings: TaskSettings) -> "BenchmarkInfo":
        """The benchmark under these settings; settings that have no effect with it are refused."""
        known = {*ANY_KIND, *KIND_SETTINGS[self.kind], *(("pixel_scaling",) if self.colours else ())}
        for key in TaskSettings.model_fields:
            if key not in known and getattr(settings, key) != getattr(DEFAULT_TASKS, key):
                raise ConfigError(f"tasks.{key} has no effect with {self.name}: {_WHY[key]}. Remove it")
        scenario = settings.scenario or self.scenario
        if self.problem == "regression" and scenario is Scenario.CLASS:
            raise ConfigError(
                f"tasks.scenario=class does not apply to {self.name}: regression has no classes. Choose domain or task"
            )
        channels, *sides = self.input_shape
        shape = (channels, *(side + 2 * settings.padding for side in sides))
        count = self.num_tasks
        if settings.classes_per_task is not None:
            if self.num_classes % settings.classes_per_task:
                raise ConfigError(
                    f"{self.name}: {self.num_classes} classes cannot be split into tasks of "
                    f"{settings.classes_per_task}; choose a divisor"
                )
            count = self.num_classes // settings.classes_per_task
        count = refuse_missing_tasks(self.name, count, settings)
        return replace(self, scenario=scenario, num_tasks=count, input_shape=shape)


_WHY = {
    "classes_per_task": "its classes are not divided among tasks",
    "class_order": "its classes are not divided among tasks",
    "padding": "its pixels are not permuted",
    "first_unpermuted": "its pixels are not permuted",
    "pixel_scaling": "its inputs are not standardised colours",
}


def _permuted_mnist(count: int, network: str) -> BenchmarkInfo:
    return BenchmarkInfo(
        name=f"permuted-mnist-{count}",
        description=f"MNIST's 70,000 handwritten digits {count} times, each time with its pixels in a different order.",
        problem="classification",
        scenario=Scenario.DOMAIN,
        num_tasks=count,
        input_shape=(1, 28, 28),
        default_network=network,
        needs_data=True,
        build=lambda seed, data_dir, tasks: permuted_mnist(count, data_dir, tasks, seed),
        kind="permuted",
        published={"tasks.first_unpermuted": True},
    )


_ALL = (
    BenchmarkInfo(
        name="regression-1d",
        description="Three polynomials on neighbouring intervals of the real line, 20 noisy samples each.",
        problem="regression",
        scenario=Scenario.DOMAIN,
        num_tasks=3,
        input_shape=(1,),
        default_network="mlp-10-10",
        needs_data=False,
        build=lambda seed, _, __: regression_1d(seed),
        data_seed=PUBLISHED_SEED,
        published={"training.fill_batches": True},
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
        build=lambda seed, _, __: modes_2d(seed),
        data_seed=PUBLISHED_SEED,
        published={"training.fill_batches": True},
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
        build=lambda seed, _, tasks: split_digits(tasks, seed),
        kind="split",
        num_classes=10,
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
        build=lambda seed, data_dir, tasks: split_mnist(data_dir, tasks, seed),
        kind="split",
        num_classes=10,
    ),
    _permuted_mnist(10, "mlp-100-100"),
    _permuted_mnist(100, "mlp-1000-1000"),
    BenchmarkInfo(
        name="split-cifar-10",
        description="CIFAR-10's 60,000 small photographs, two classes per task.",
        problem="classification",
        scenario=Scenario.CLASS,
        num_tasks=5,
        input_shape=(3, 32, 32),
        default_network="resnet-32",
        needs_data=True,
        build=lambda seed, data_dir, tasks: split_cifar10(data_dir, tasks, seed),
        kind="split",
        num_classes=10,
        augmentation="crop-flip",
        colours=True,
        published={"tasks.pixel_scaling": "imagenet"},
    ),
    BenchmarkInfo(
        name="split-cifar-100",
        description="CIFAR-100's 60,000 small photographs, ten classes per task.",
        problem="classification",
        scenario=Scenario.CLASS,
        num_tasks=10,
        input_shape=(3, 32, 32),
        default_network="resnet-18",
        needs_data=True,
        build=lambda seed, data_dir, tasks: split_cifar100(data_dir, tasks, seed),
        kind="split",
        num_classes=100,
        augmentation="crop-flip",
        colours=True,
        published={"tasks.pixel_scaling": "imagenet"},
    ),
)

BENCHMARKS: dict[str, BenchmarkInfo] = {info.name: info for info in _ALL}


def benchmark_named(name: str) -> BenchmarkInfo:
    """What is known about a benchmark, by its name."""
    if name not in BENCHMARKS:
        near = difflib.get_close_matches(name, BENCHMARKS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"benchmark {name!r} is unknown; choose one of {', '.join(BENCHMARKS)}{hint}")
    return BENCHMARKS[name]


def build_benchmark(
    name: str, *, data_seed: int | None = None, data_dir: Path | None = None, tasks: TaskSettings = DEFAULT_TASKS
) -> Benchmark:
    """Build a benchmark by name.

    ``data_seed`` (None: the benchmark's own) affects generated data, permutations and random class orders,
    ``data_dir`` benchmarks that need data, ``tasks`` how the data is split.
    """
    info = benchmark_named(name).with_settings(tasks)
    seed = info.data_seed if data_seed is None else data_seed
    whole = replace(info.build(seed, data_dir, tasks), scenario=info.scenario)
    return with_protocol(whole, tasks, seed)
