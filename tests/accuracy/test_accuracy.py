"""What the shipped recipes reach, each with a margin below what docs/results.md reports. Run by `make test-slow`."""

from pathlib import Path
from typing import Any

import pytest

from metareplay.experiments.plan import make_plan
from metareplay.experiments.results import Results
from metareplay.experiments.run import Run

pytestmark = pytest.mark.slow


def run(tmp_path: Path, benchmark: str, method: str, seed: int = 0, **settings: Any) -> Results:
    """Results of a run with the settings that the command line would take."""
    overrides = {key.replace("__", "."): value for key, value in settings.items()}
    plan = make_plan({"benchmark": benchmark, "method": method, "seed": seed}, overrides, out=tmp_path / f"seed-{seed}")
    assert "tuned" in plan.source or "published" in plan.source
    return Run(plan).execute()


@pytest.mark.parametrize("seed", [0, 1])
def test_the_demo_remembers_and_infers(tmp_path: Path, seed: int) -> None:
    actual = run(tmp_path, "split-digits", "pr-bbb", seed)
    assert actual.tgiven_final >= 98
    assert actual.forgetting <= 0.5
    assert actual.tinfer_final["ent"] >= 50
    assert actual.batch_wise["ent"] >= 95
    assert actual.parameters.trained < actual.parameters.main_network


def test_point_estimates_remember_the_digits(tmp_path: Path) -> None:
    actual = run(tmp_path, "split-digits", "pr-dirac")
    assert actual.tgiven_final >= 97
    assert actual.forgetting <= 0.5


def test_fine_tuning_forgets_and_joint_training_does_not(tmp_path: Path) -> None:
    forgetful = run(tmp_path / "a", "modes-2d", "hnet-fine-tuning")
    assert forgetful.tgiven_during == 100
    upper = make_plan(
        {"benchmark": "split-digits", "method": "joint"}, {"training.iterations": 1000}, out=tmp_path / "b"
    )
    joint = Run(upper).execute()
    assert joint.tinfer_final["softmax"] >= 95


@pytest.mark.parametrize("method", ["pr-dirac", "pr-bbb"])
def test_modes_are_told_apart(tmp_path: Path, method: str) -> None:
    actual = run(tmp_path, "modes-2d", method)
    assert actual.tgiven_during == 100
    assert actual.tgiven_final >= 99


@pytest.mark.parametrize(("method", "most"), [("pr-dirac", 0.02), ("pr-bbb", 0.02)])
def test_polynomials_are_fitted_and_kept(tmp_path: Path, method: str, most: float) -> None:
    actual = run(tmp_path, "regression-1d", method)
    assert actual.mse.tgiven_final < most
    assert abs(actual.mse.tgiven_final - actual.mse.tgiven_during) < 0.003
    if method == "pr-bbb":
        assert actual.task_inference_accuracy["variance"] >= 90


def test_separate_networks_learn_split_mnist(tmp_path: Path, mnist_dir: Path) -> None:
    actual = run(tmp_path, "split-mnist", "sp-dirac", training__iterations=1500, data_dir=str(mnist_dir))
    assert actual.tgiven_final >= 99.4
    assert actual.tinfer_final["ent"] >= 62
