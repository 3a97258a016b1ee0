"""Runs on a user's own data: the benchmark that a configuration means, and runs on benchmarks made in Python."""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from metareplay.benchmarks.base import Benchmark
from metareplay.benchmarks.own import own_benchmark
from metareplay.benchmarks.registry import BenchmarkInfo, build_benchmark
from metareplay.errors import ConfigError, DataError
from metareplay.learner.config import RunConfig
from metareplay.learner.recipe_book import CUSTOM, CUSTOM_REGRESSION

DEFAULT_NETWORKS = {"classification": "mlp-100-100", "regression": "mlp-20-20"}


def benchmark_for(config: RunConfig) -> Benchmark:
    """The benchmark that a configuration names, or the user's own data."""
    if config.data.path is not None:
        return own_benchmark(config.data, data_seed=config.data_seed, scenario=config.tasks.scenario)
    if config.benchmark in (CUSTOM, CUSTOM_REGRESSION):
        raise ConfigError(
            f"benchmark {config.benchmark!r} means data of your own; name them with --data, or in Python give the benchmark itself"
        )
    data_dir = Path(config.data_dir) if config.data_dir else None
    return build_benchmark(config.benchmark, data_seed=config.data_seed, data_dir=data_dir, tasks=config.tasks)


def with_fingerprint(config: RunConfig, benchmark: Benchmark) -> RunConfig:
    """The configuration, with the checksum of a user's own data in it; other data than it knows of are refused."""
    found, known = benchmark.fingerprint, config.data.fingerprint
    if found is None or found == known:
        return config
    if known is not None:
        raise DataError(f"the data have the fingerprint {found}, but the configuration says {known}: they changed; begin a new run")
    return config.model_copy(update={"data": config.data.model_copy(update={"fingerprint": found})})


def refuse_changed_data(stored: Mapping[str, Any], config: RunConfig, folder: Path) -> None:
    """``stored`` are the settings (dotted keys) of the run in a folder."""
    before, now = stored.get("data.fingerprint"), config.data.fingerprint
    if before is not None and now is not None and before != now:
        raise DataError(
            f"the data changed since the run in {folder} began (fingerprint {now}, then {before}), or are now read in another way; "
            "restore them, or begin a new run in another --out"
        )


def described(benchmark: Benchmark) -> BenchmarkInfo:
    """What the registry would say of a user's own data."""
    regression = benchmark.problem == "regression"
    return BenchmarkInfo(
        name=CUSTOM_REGRESSION if regression else CUSTOM,
        description="A user's own data.",
        problem=benchmark.problem,
        scenario=benchmark.scenario,
        num_tasks=len(benchmark),
        input_shape=benchmark.input_shape,
        default_network=DEFAULT_NETWORKS[benchmark.problem],
        needs_data=prod(benchmark.input_shape) > 500,  # small networks are quickest with one thread
        build=lambda *_: benchmark,
    )
