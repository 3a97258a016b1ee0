"""Runs on benchmarks made in Python: the same folder as any other run, resumed on the same data only."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch.utils.data import TensorDataset

from metareplay import ContinualClassifier
from metareplay.benchmarks import stream_benchmark
from metareplay.benchmarks.base import Benchmark
from metareplay.errors import ConfigError, DataError
from metareplay.evaluation.evaluate import Evaluator
from metareplay.experiments.plan import Plan, benchmark_for
from metareplay.experiments.run import Run
from metareplay.experiments.run_benchmark import run_benchmark
from metareplay.learner.recipe_book import Recipe

FAST = {"training.iterations": 60, "inference.samples": 4, "training.learning_rate": 0.02}


def task(low: int, label: int, shift: float = 0.0) -> TensorDataset:
    y = torch.arange(40) % 2
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(low)) + 8 * y[:, None] + low + shift
    return TensorDataset(x, y + label, torch.full_like(y, low))


def stream(shift: float = 0.0) -> Benchmark:
    return stream_benchmark([task(0, 0), task(5, 2, shift)])


def test_a_stream_leaves_a_whole_run(tmp_path: Path) -> None:
    results = run_benchmark(stream(), tmp_path / "run", method="sp-dirac", network="mlp-8", settings=FAST)
    assert results.tgiven_final > 80
    assert results.task_names == ["task-0", "task-5"]
    model = ContinualClassifier.load(tmp_path / "run")
    x, y, _ = task(0, 0).tensors
    assert model.score(x, y, task="task-0") > 0.8  # in the user's units: the scaling was stored
    stored = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert stored["benchmark"] == "custom"
    assert stored["data"]["fingerprint"] == stream().fingerprint


def test_memory_is_given_back_around_every_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    monkeypatch.setattr("metareplay.experiments.run.give_back_freed_memory", lambda: order.append("given back"))
    monkeypatch.setattr(
        Evaluator, "tested", lambda *given, tested=Evaluator.tested: (order.append("tested"), tested(*given))[1]
    )
    run_benchmark(stream(), tmp_path / "run", method="sp-dirac", network="mlp-8", settings=FAST)
    assert order == ["given back", "tested", "given back", "given back", "tested", "tested", "given back"]


def test_a_fast_recipe_is_taken_unless_the_published_one_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [
        Recipe("custom", "sp-radial", "mlp-8", "here", {"training.iterations": 3 + 2 * fast}, fast)
        for fast in (False, True)
    ]
    monkeypatch.setattr("metareplay.learner.recipe_book.all_recipes", lambda: tuple(both))
    for published, iterations in ((False, 5), (True, 3)):
        run_benchmark(stream(), tmp_path / str(published), method="sp-radial", network="mlp-8", published=published)
        assert (
            yaml.safe_load((tmp_path / str(published) / "config.yaml").read_text())["training"]["iterations"]
            == iterations
        )


def test_a_stream_is_resumed_on_the_same_data_only(tmp_path: Path) -> None:
    given: dict[str, Any] = {"method": "sp-dirac", "network": "mlp-8", "settings": FAST}
    steps = iter(range(90))  # stops in the second task
    bench = stream()
    config = Plan.of(_config(bench), tmp_path / "whole", benchmark=bench).config
    with pytest.raises(Exception, match="continue with --resume"):
        Run(Plan.of(config, tmp_path / "run", benchmark=bench), should_stop=lambda: next(steps, None) is None).execute()
    with pytest.raises(DataError, match="the data have changed"):
        Run(Plan.of(config, tmp_path / "run", benchmark=stream(shift=1.0))).execute(resume=True)
    with pytest.raises(DataError, match="the data changed since the run in"):
        run_benchmark(stream(shift=1.0), tmp_path / "run", resume=True, **given)
    resumed = run_benchmark(stream(), tmp_path / "run", resume=True, **given)
    whole = run_benchmark(stream(), tmp_path / "whole", **given)
    assert resumed.tgiven_matrix == whole.tgiven_matrix


def _config(bench: Benchmark) -> Any:
    from metareplay.experiments.plan import own_defaults
    from metareplay.learner.config import build_config

    return build_config(own_defaults(bench, "sp-dirac", "mlp-8", FAST)[0], FAST, "here")


def test_regression_errors_are_in_the_users_units(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 30)[:, None]
    y = 1000 * np.sin(9 * x)  # no straight line
    bench = stream_benchmark([(x, y), (x + 5, y)], problem="regression")
    results = run_benchmark(bench, tmp_path / "run", settings={"training.iterations": 2, "inference.samples": 2})
    assert results.mse.tgiven_final > 1000


def test_the_benchmark_is_not_given_twice(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.path has no effect here: the benchmark is given"):
        run_benchmark(stream(), tmp_path / "run", settings={"data.path": "x.csv"})
    with pytest.raises(ConfigError, match="'custom' stands for your own data"):
        benchmark_for(_config(stream()))


def test_estimators_take_what_streams_give() -> None:
    class Experience:
        dataset = task(0, 0)

    model = ContinualClassifier(method="sp-dirac", network="mlp-8", settings=FAST)
    model.learn_task(Experience())  # type: ignore[arg-type]
    model.learn_task(task(5, 2))
    assert model.classes_.tolist() == [0, 1, 2, 3]
    with pytest.raises(ConfigError, match=r"data\.path is a setting of runs"):
        ContinualClassifier(settings={"data.path": "x"})
