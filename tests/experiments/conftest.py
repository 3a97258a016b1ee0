"""Tiny runs: configurations that take a fraction of a second, and what makes two runs the same."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from metareplay.benchmarks.registry import BENCHMARKS
from metareplay.learner.config import RunConfig, build_config
from metareplay.learner.methods import default_network
from metareplay.learner.recipe_book import default_settings
from metareplay.learner.store import load_model

TINY: dict[str, Any] = {
    "training.iterations": 8,
    "training.checkpoint_every": 3,
    "training.log_every": 1,
    "inference.samples": 3,
    "inference.batch_wise": 20,
    "report.references": False,
}


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., RunConfig]:
    """Builds a configuration from the benchmark's recipe, made tiny."""

    def make(
        method: str = "pr-bbb", settings: Mapping[str, Any] | None = None, benchmark: str = "modes-2d"
    ) -> RunConfig:
        network = default_network(method, BENCHMARKS[benchmark].default_network)
        defaults, _ = default_settings(benchmark, method, network)
        small = {key: [6, 6] for key in ("hypernet.hidden", "posterior.generator_hidden") if key in defaults}
        return build_config(defaults, {**TINY, **small, **(settings or {})}, "test")

    return make


@pytest.fixture(scope="session")
def assert_same_run() -> Callable[[Path, Path], None]:
    """Two runs gave the same figures, weights and metrics, bit for bit."""

    def compare(first: Path, second: Path) -> None:
        results = [json.loads((folder / "results.json").read_text()) for folder in (first, second)]
        assert all(result.pop("peak_memory_mib") > 0 for result in results)
        seconds = [result.pop("seconds") for result in results]
        assert all(set(result) == {"train", "evaluate", "by_task"} for result in seconds)
        assert results[0] == results[1]
        weights = [load_model(folder).learner.model.tensors() for folder in (first, second)]
        assert weights[0].keys() == weights[1].keys()
        for name, tensor in weights[0].items():
            assert torch.equal(tensor, weights[1][name]), name
        for name in ("predictive.safetensors", "uncertainty.safetensors"):
            stored = [path.read_bytes() if (path := folder / name).exists() else None for folder in (first, second)]
            assert stored[0] == stored[1], name
        metrics = [(folder / "metrics.jsonl").read_text().splitlines() for folder in (first, second)]
        assert metrics[0] == metrics[1]

    return compare
