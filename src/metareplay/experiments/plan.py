"""A plan: everything that is decided before a run begins. It is made here, once, and only read afterwards."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from metareplay.benchmarks.base import Benchmark, Problem
from metareplay.benchmarks.own import own_benchmark
from metareplay.benchmarks.registry import BenchmarkInfo, benchmark_named, build_benchmark
from metareplay.benchmarks.validation import with_protocol
from metareplay.data.reading import absolute
from metareplay.errors import ConfigError, DataError
from metareplay.experiments.run_folder import read_settings, stored_config
from metareplay.learner.config import RunConfig, Source, build_config, without_inert
from metareplay.learner.features import same_inputs, with_features
from metareplay.learner.methods import default_network
from metareplay.learner.recipe_book import OWN_DATA, default_settings
from metareplay.learner.sizes import Facts, own_settings
from metareplay.nets.registry import network_factory
from metareplay.permissions import permit
from metareplay.settings import flatten

DEFAULT_NETWORKS: dict[Problem, str] = {"classification": "mlp-100-100", "regression": "mlp-20-20"}
"""The default networks for a user's own data."""
PATHS = ("data.path", "data.test_path")
ORDINARY = frozenset({"benchmark", "method", "network", "seed", "data_dir", "device", *PATHS})
"""Options that may be given to resume a run without replacing its stored settings."""


@dataclass(frozen=True)
class Plan:
    """Everything a run needs to begin."""

    config: RunConfig
    folder: Path
    source: str
    """Where the settings come from: a recipe, a stored run."""
    info: BenchmarkInfo
    """What is known about the benchmark without its data."""
    read: Callable[[], Benchmark] = field(repr=False, compare=False)
    """Returns the same benchmark each time; the data are read on the first call."""

    @classmethod
    def of(
        cls, config: RunConfig, folder: Path, *, benchmark: Benchmark | None = None, source: str = "as given"
    ) -> "Plan":
        """The plan of a complete configuration, on the benchmark it names or on a given one."""
        if benchmark is None and config.data.path is not None:
            benchmark = benchmark_for(config)
        if benchmark is not None:
            raw = benchmark
            read = cache(lambda: with_features(raw, config))
            return cls(with_fingerprint(config, raw), folder, source, described(raw), read)
        info = benchmark_named(_known(config.benchmark)).with_settings(config.tasks)
        return cls(config, folder, source, info, cache(lambda: with_features(benchmark_for(config), config)))

    @property
    def benchmark(self) -> Benchmark:
        """The tasks."""
        return self.read()

    def with_seed(self, seed: int, folder: Path) -> "Plan":
        """The same plan with another seed, in a separate folder; the data are shared."""
        return replace(self, config=self.config.model_copy(update={"seed": seed}), folder=folder)

    def variant(self, config: RunConfig, folder: Path, source: str) -> "Plan":
        """The plan of another configuration; identical data are shared."""
        keys = ("benchmark", "data_seed", "data_dir", "data", "tasks")
        if all(getattr(config, key) == getattr(self.config, key) for key in keys) and same_inputs(config, self.config):
            return replace(self, config=config, folder=folder, source=source)
        return Plan.of(config, folder, source=source)

    def check(self) -> None:
        """Fail now if the data cannot be read or do not fit the network, e.g. before an earlier run is removed."""
        network_factory(self.config.network, self.benchmark.input_shape, self.config)


def make_plan(
    options: Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    file: Path | None = None,
    out: Path | None = None,
    threads: int | None = None,
    resume: bool = False,
    published: bool = False,
) -> Plan:
    """Resolve settings with dotted keys: defaults, recipe, ``file``, ``options``, ``overrides``; later ones win.

    A run that is resumed without any settings uses those stored in its folder. ``threads`` are those of a run on large
    inputs, unless a setting names them; by default all processors.
    """
    for typed in (options, overrides or {}):  # a file may name code, but only the user permits it
        if isinstance(typed.get("network"), str):
            permit(typed["network"])
    has_settings = bool(published or set(options) - ORDINARY or overrides or file)
    in_file = without_inert(read_settings(file)) if file else {}
    settings = {**in_file, **options, **(overrides or {})}
    folder, source = out or default_folder(settings), ""
    stored = stored_config(folder) if resume and not has_settings else None
    if stored is not None:
        file, settings, source = stored, {**read_settings(stored), **options}, f"as stored in {stored}"
    origin = _source(options, overrides or {}, file)
    benchmark, repeated = _own_data(settings, origin), settings.get("data.fingerprint") is not None
    if benchmark is not None:
        info, settings = described(benchmark), _as_read(settings, benchmark)
    else:
        info = benchmark_named(_known(settings.get("benchmark", "split-digits")))
    method, network = str(settings.get("method", "pr-bbb")), settings.get("network")
    if benchmark is not None:
        defaults, recipe = own_defaults(benchmark, method, network, settings, published=published, repeated=repeated)
    else:
        chosen = str(network or default_network(method, info.default_network))
        defaults, recipe = default_settings(info.name, method, chosen, published=published)
    most = threads_for(folder if resume else None, threads or os.cpu_count() or 1, needs_data=info.needs_data)
    config = build_config({**defaults, "threads": most}, settings, origin, stored=stored is not None)
    _check_benchmark_settings(config, info)
    if stored is None and file is not None:
        source = _from_file(file, in_file, defaults, config, recipe)
    return Plan.of(config, folder, benchmark=benchmark, source=source or recipe)


def threads_for(folder: Path | None, most: int, *, needs_data: bool) -> int:
    """Threads of a run for which no setting names them: one for small inputs. A run that was begun in ``folder`` keeps
    its own, since results are bit-identical only for the same number."""
    begun = None if folder is None else stored_config(folder)
    if begun is not None and isinstance(threads := read_settings(begun, "").get("threads"), int):
        return threads
    return most if needs_data else 1


def _from_file(
    file: Path, in_file: Mapping[str, Any], defaults: Mapping[str, Any], config: RunConfig, recipe: str
) -> str:
    """Where the settings come from, if a file names some: the recipe only if it provides others than the file does."""
    used = flatten(config.dump())
    rest = set(defaults) & set(used) - set(in_file) - {"benchmark", "method", "network"}
    return f"from {file}, the rest {recipe}" if any(defaults[key] == used[key] for key in rest) else f"from {file}"


def own_defaults(
    benchmark: Benchmark,
    method: str,
    network: Any,
    given: Mapping[str, Any],
    *,
    published: bool = False,
    repeated: bool = False,
) -> tuple[dict[str, Any], str]:
    """Default settings for a user's own data, by the first task, and where they come from."""
    facts = Facts.of(benchmark[0].train, benchmark.problem)
    name = None if network is None else str(network)
    return own_settings(facts, benchmark.problem, method, name, given, published=published, repeated=repeated)


def _source(options: Mapping[str, Any], overrides: Mapping[str, Any], file: Path | None) -> Source:
    """Where each setting comes from."""
    name = str(file) if file else "--set" if overrides else ""
    return Source(name, {**dict.fromkeys(options, ""), **dict.fromkeys(overrides, "--set")})


def default_folder(settings: Mapping[str, Any]) -> Path:
    """The folder of a run, unless one is given."""
    method, network = settings.get("method", "pr-bbb"), settings.get("network")
    if settings.get("data.path") is not None:
        name = Path(str(settings["data.path"]).removeprefix("hf:").rstrip("/")).name.partition(".")[0] or "data"
    else:
        info = benchmark_named(_known(settings.get("benchmark", "split-digits")))
        name, network = info.name, network or default_network(str(method), info.default_network)
    network = re.sub(r"[:/\\]+", ".", str(network or ""))  # a user's own is module:function, a backbone may be a folder
    return Path("runs") / "-".join(filter(None, (name, method, network)))


def benchmark_for(config: RunConfig) -> Benchmark:
    """Read the benchmark that a configuration names, or the user's own data."""
    if config.data.path is not None:
        whole = own_benchmark(config.data, data_seed=config.data_seed, scenario=config.tasks.scenario)
        return with_protocol(whole, config.tasks, config.data_seed)
    data_dir = Path(config.data_dir) if config.data_dir else None
    return build_benchmark(_known(config.benchmark), data_seed=config.data_seed, data_dir=data_dir, tasks=config.tasks)


def with_fingerprint(config: RunConfig, benchmark: Benchmark) -> RunConfig:
    """The configuration with the checksum of a user's own data; data with a different checksum are refused."""
    read, known = benchmark.fingerprint, config.data.fingerprint
    if read is None or read == known:
        return config
    if known is not None:
        raise DataError(
            f"the data have changed: their fingerprint is {read}, but the configuration says {known}; start a new run"
        )
    return config.model_copy(update={"data": config.data.model_copy(update={"fingerprint": read})})


def described(benchmark: Benchmark) -> BenchmarkInfo:
    """A registry entry for a user's own data."""
    return BenchmarkInfo(
        name=OWN_DATA[benchmark.problem],
        description="A user's own data.",
        problem=benchmark.problem,
        scenario=benchmark.scenario,
        num_tasks=len(benchmark),
        input_shape=benchmark.input_shape,
        default_network=DEFAULT_NETWORKS[benchmark.problem],
        needs_data=prod(benchmark.input_shape) > 500,  # small networks are fastest with one thread
        build=lambda *_: benchmark,
    )


def _own_data(settings: Mapping[str, Any], source: Source) -> Benchmark | None:
    """Read the user's own data that the settings name; None if they name a benchmark."""
    if settings.get("data.path") is None:
        return None
    if settings.get("benchmark") not in (None, *OWN_DATA.values()):
        raise ConfigError(f"give either the benchmark {settings['benchmark']} or your own --data, not both")
    about = ("data_seed", "tasks.scenario", "tasks.first", "tasks.validation")
    keys = [key for key in settings if key.startswith("data.") or key in about]
    return benchmark_for(build_config({}, _located({key: settings[key] for key in keys}), source))


def _as_read(settings: Mapping[str, Any], benchmark: Benchmark) -> dict[str, Any]:
    """The settings with what is known once the data are read: their location, name and checksum."""
    return {**_located(settings), "benchmark": OWN_DATA[benchmark.problem], "data.fingerprint": benchmark.fingerprint}


def _located(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with absolute paths."""
    return {
        key: absolute(str(value)) if key in PATHS and value is not None else value for key, value in settings.items()
    }


def _known(name: Any) -> str:
    """The name of a registered benchmark; the names for a user's own data are refused."""
    if name in OWN_DATA.values():
        raise ConfigError(
            f"benchmark {name!r} stands for your own data; give them with --data, or pass the benchmark in Python"
        )
    return str(name)


def _check_benchmark_settings(config: RunConfig, info: BenchmarkInfo) -> None:
    """Refuse settings that have no effect with this benchmark."""
    info.with_settings(config.tasks)
    settings, defaults = flatten(config.model_dump()), flatten(type(config)().model_dump())
    reasons = {
        "posterior.likelihood_scale": None
        if info.problem == "regression"
        else "classification has no Gaussian likelihood",
        "heads": None if info.problem == "classification" else "regression tasks share their outputs",
        "data_seed": None if info.uses_seed(config.tasks) else "its data are not generated",
    }
    for key, reason in reasons.items():
        if settings.get(key) is not None and reason is not None and settings[key] != defaults[key]:
            raise ConfigError(f"{key} has no effect with {info.name}: {reason}. Remove it")
