"""The seed fixes everything, whatever else draws random numbers; another seed gives another run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from metareplay import ContinualClassifier
from metareplay.experiments.plan import Plan
from metareplay.experiments.run import Run
from metareplay.learner.config import RunConfig, build_config
from metareplay.learner.recipe_book import default_settings
from metareplay.training.loop import Step
from metareplay.training.progress import NullObserver

SETTINGS: dict[str, Any] = {
    "training.iterations": 6,
    "training.log_every": 1,
    "inference.samples": 3,
    "report.references": False,
}


def config_of(method: str, seed: int = 0) -> RunConfig:
    defaults, _ = default_settings("modes-2d", method, "mlp-10-10")
    tuning = {"strategy.finetune_iterations": 4} if method.endswith("-cs") else {}
    return build_config(defaults, {**SETTINGS, **tuning, "seed": seed}, "test")


def outcome(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The figures except time and memory, and every logged loss."""
    results = json.loads((folder / "results.json").read_text())
    return {key: value for key, value in results.items() if key not in ("seconds", "peak_memory_mib")}, (
        folder / "metrics.jsonl"
    ).read_text().splitlines()


class Gambler(NullObserver):
    """Draws from every global generator while the run works."""

    def step(self, step: Step) -> None:
        torch.rand(7)
        np.random.rand(3)
        torch.manual_seed(int(torch.randint(1000, (1,))))


def test_two_processes_give_the_same(tmp_path: Path) -> None:
    config = config_of("pr-bbb")
    Run(Plan.of(config, tmp_path / "here")).execute()
    script = "import json, sys; from pathlib import Path; from metareplay.experiments.plan import Plan, RunConfig; "
    script += "from metareplay.experiments.run import Run; "
    script += "Run(Plan.of(RunConfig.of(json.loads(sys.argv[1])), Path(sys.argv[2]))).execute(); "
    script += "assert not {'sympy', 'torch._dynamo'} & set(sys.modules)"  # a second of start-up: see optimisers.py
    command = [sys.executable, "-c", script, config.model_dump_json(), str(tmp_path / "there")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "17"}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert outcome(tmp_path / "here") == outcome(tmp_path / "there")


# of every method: the tests of resuming, and conformance
@pytest.mark.usefixtures("small_maps")
@pytest.mark.parametrize("method", ["pr-bbb-cs", "joint"])
def test_the_seed_decides_and_nothing_else(method: str, tmp_path: Path) -> None:
    Run(Plan.of(config_of(method), tmp_path / "first")).execute()
    torch.manual_seed(12345)
    Run(Plan.of(config_of(method), tmp_path / "second"), observer=Gambler()).execute()
    Run(Plan.of(config_of(method, seed=1), tmp_path / "third")).execute()
    first, second, third = (outcome(tmp_path / name) for name in ("first", "second", "third"))
    assert first == second
    assert first[1] != third[1]  # other losses


def test_a_run_leaves_the_global_generator_alone(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    Run(Plan.of(config_of("pr-bbb"), tmp_path / "run")).execute()
    assert torch.equal(torch.get_rng_state(), before)


def test_estimators_draw_only_from_their_seed() -> None:
    x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)), [0, 1] * 10
    predictions = []
    for number, seed in enumerate((5, 5, 6)):
        torch.manual_seed(number)
        model = ContinualClassifier(
            "pr-bbb", "mlp-5", seed=seed, settings={"training.iterations": 5, "inference.samples": 3}
        )
        predictions.append(model.learn_task(x, y).predict_proba(x))
    assert np.array_equal(predictions[0], predictions[1])
    assert not np.array_equal(predictions[0], predictions[2])


def test_predicting_changes_nothing() -> None:
    x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)), [0, 1] * 10
    models = [
        ContinualClassifier("pr-bbb", "mlp-5", settings={"training.iterations": 5, "inference.samples": 3})
        for _ in range(2)
    ]
    for model in models:
        model.learn_task(x, y)
    first = models[0].predict_proba(x)
    assert np.array_equal(models[0].predict_proba(x), first)  # the same weight samples each time
    for model in models:
        model.learn_task(x + 5, [2, 3] * 10)
    assert np.array_equal(models[0].predict_proba(x, 1), models[1].predict_proba(x, 1))
