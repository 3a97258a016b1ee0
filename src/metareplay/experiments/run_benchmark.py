"""A run on a benchmark defined in Python, such as a stream of PyTorch datasets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metareplay.benchmarks.base import Benchmark
from metareplay.benchmarks.validation import with_protocol
from metareplay.errors import ConfigError
from metareplay.experiments.plan import Plan, own_defaults
from metareplay.experiments.results import Results
from metareplay.experiments.run import Run
from metareplay.learner.config import build_config
from metareplay.permissions import permit


def run_benchmark(
    benchmark: Benchmark,
    out: str | Path,
    *,
    method: str = "pr-bbb",
    network: str | None = None,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    published: bool = False,
    resume: bool = False,
) -> Results:
    """Learn and test the tasks as ``metareplay run`` does, with the same files in ``out``.

    Returns the contents of ``results.json``.

    With ``published`` it uses the paper's settings even where this project has cheaper ones.
    """
    if wrong := [
        key for key in settings or {} if key in ("benchmark", "data_dir", "data_seed") or key.startswith("data.")
    ]:
        raise ConfigError(f"{wrong[0]} has no effect here: the benchmark is given; remove it")
    if network is not None:
        permit(network)
    defaults, source = own_defaults(benchmark, method, network, settings or {}, published=published)
    config = build_config({**defaults, "seed": seed}, dict(settings or {}), "settings")
    chosen = with_protocol(benchmark, config.tasks, config.data_seed)
    return Run(Plan.of(config, Path(out), benchmark=chosen, source=source)).execute(resume=resume)
