"""What ``metareplay run --data`` adds to a run: read the user's own data once, and say what was found."""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metareplay.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from metareplay.benchmarks.base import Benchmark, Scenario
    from metareplay.benchmarks.registry import BenchmarkInfo
    from metareplay.learner.config import RunConfig

PATHS = ("data.path", "data.test_path")


def absolute(name: str) -> str:
    """A path that means the same from every folder; the hub's names stay as they are, and so does what does not exist."""
    from metareplay.data.readers.hub import PREFIX
    from metareplay.data.reading import located

    return name if name.startswith(PREFIX) else str(located(name).resolve())


def info_for(settings: dict[str, Any]) -> "BenchmarkInfo":
    """What is known of the benchmark in these settings; of a user's own data also their fingerprint is noted in them."""
    from metareplay.benchmarks.registry import benchmark_named
    from metareplay.experiments.own_data import described
    from metareplay.learner.config import build_config
    from metareplay.learner.recipe_book import CUSTOM, CUSTOM_REGRESSION

    if settings.get("data.path") is None:
        if settings.get("benchmark") in (CUSTOM, CUSTOM_REGRESSION):
            raise ConfigError("a run on your own data needs them: name them with --data")
        return benchmark_named(str(settings.get("benchmark", "split-digits")))
    if settings.get("benchmark") not in (None, CUSTOM, CUSTOM_REGRESSION):
        raise ConfigError(f"give either the benchmark {settings['benchmark']} or your own --data, not both")
    settings |= {key: absolute(str(settings[key])) for key in PATHS if settings.get(key) is not None}
    own = {key: value for key, value in settings.items() if key.startswith("data.") or key in ("data_seed", "tasks.scenario")}
    benchmark = loaded(build_config({}, own, "settings"))
    info = described(benchmark)
    settings |= {"benchmark": info.name, "data.fingerprint": benchmark.fingerprint}
    return info


def loaded(config: "RunConfig") -> "Benchmark":
    """The user's own data of a configuration; one command reads them once."""
    from metareplay.benchmarks.own import refuse_other

    benchmark = _read(config.data.model_copy(update={"fingerprint": None}).model_dump_json(), config.data_seed, config.tasks.scenario)
    refuse_other(benchmark, config.data)
    return benchmark


@lru_cache(maxsize=1)
def _read(text: str, data_seed: int, scenario: "Scenario | None") -> "Benchmark":
    from metareplay.benchmarks.own import own_benchmark
    from metareplay.data.settings import DataSettings

    return own_benchmark(DataSettings.model_validate_json(text), data_seed=data_seed, scenario=scenario)


def forget() -> None:
    """The next command reads anew."""
    _read.cache_clear()


def folder_name(settings: dict[str, Any]) -> str:
    """The part of a run's default folder that names the data."""
    return Path(str(settings["data.path"]).removeprefix("hf:").rstrip("/")).name.partition(".")[0] or "data"


def introduce_data(console: "Console", config: "RunConfig") -> None:
    """Say what was found in the user's data."""
    from rich.markup import escape

    benchmark = loaded(config)
    tasks = list(benchmark)
    train, test = sum(len(task.train.x) for task in tasks), sum(len(task.test.x) for task in tasks)
    shape = " x ".join(map(str, benchmark.input_shape))
    what = f"{shape} pixels" if len(benchmark.input_shape) == 3 else f"{shape} inputs"
    console.print(
        f"data: {escape(str(config.data.path))}: {train:,} training and {test:,} test examples of {what}", highlight=False, soft_wrap=True
    )
    for note in benchmark.notes:
        console.print(f"  {escape(note)}", highlight=False, soft_wrap=True)
    for task in tasks[:20]:
        classes = f"classes {', '.join(map(str, task.classes[:10]))}{', ...' if len(task.classes) > 10 else ''}; " if task.classes else ""
        console.print(
            escape(f"  task {task.name}: {classes}{len(task.train.x):,} + {len(task.test.x):,} examples"), highlight=False, soft_wrap=True
        )
    if len(tasks) > 20:
        console.print(f"  and {len(tasks) - 20} more tasks", highlight=False, soft_wrap=True)


def info_of(config: "RunConfig") -> "BenchmarkInfo":
    """The same of a configuration."""
    from metareplay.benchmarks.registry import benchmark_named
    from metareplay.experiments.own_data import described

    return described(loaded(config)) if config.data.path is not None else benchmark_named(config.benchmark).with_settings(config.tasks)


def go_offline() -> None:
    """Nothing is asked of the network from here on, by this process or those it starts."""
    from metareplay.data import offline

    offline.go_offline()
