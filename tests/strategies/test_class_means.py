"""nmc and slda: what they compute is that of scikit-learn, however the examples arrive."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NearestCentroid

from metareplay import ContinualClassifier
from metareplay.benchmarks.images import split_digits
from metareplay.errors import ConfigError
from metareplay.estimators import ContinualRegressor
from metareplay.experiments.plan import Plan
from metareplay.experiments.run import Run
from metareplay.experiments.run_benchmark import run_benchmark
from metareplay.learner.config import build_config
from metareplay.learner.store import load_model
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.strategies.class_means import ClassMeans
from metareplay.training.progress import NullObserver, Stage

ALL = {"statistics.collect": False}  # so that no example is held out


def clouds(classes: int, count: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    mixing, y = rng.normal(size=(5, 5)), rng.integers(classes, size=count * classes)
    return (rng.normal(size=(classes, 5))[y] * 2 + rng.normal(size=(len(y), 5)) @ mixing).astype(np.float32), y


def taught(method: str, x: np.ndarray, y: np.ndarray) -> ContinualClassifier:
    """Two classes at a time."""
    model = ContinualClassifier(method, standardise=False, settings=ALL)
    for first in range(0, int(y.max()) + 1, 2):
        rows = (y == first) | (y == first + 1)
        model.learn_task(x[rows], y[rows])
    return model


def test_slda_is_linear_discriminant_analysis_of_all_data_at_once() -> None:
    x, y = clouds(6)
    joint = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.001, priors=np.full(6, 1 / 6)).fit(x, y)
    model = taught("slda", x, y)
    new, _ = clouds(6, seed=1)
    counted = np.bincount(y)  # scikit-learn weights the classes' covariances by the priors, slda by their examples
    assert counted.min() > 40
    assert np.mean(model.predict(new) == joint.predict(new)) > 0.98


def test_the_outputs_of_slda_are_log_densities_up_to_a_constant() -> None:
    x, y = clouds(4)
    model = taught("slda", x, y)
    means = np.stack([x[y == c].mean(0, dtype=np.float64) for c in range(4)])
    within = x.astype(np.float64) - means[y]
    covariance = within.T @ within / len(x)
    covariance = 0.999 * covariance + 0.001 * np.trace(covariance) / 5 * np.eye(5)
    apart = x[:20, None].astype(np.float64) - means  # (N, C, F)
    costs = 0.5 * np.einsum("ncf,fg,ncg->nc", apart, np.linalg.inv(covariance), apart)
    expected = np.exp(-costs) / np.exp(-costs).sum(1, keepdims=True)
    np.testing.assert_allclose(model.predict_full(x[:20]).probabilities, expected, atol=2e-3)


def test_nmc_is_the_nearest_centroid() -> None:
    x, y = clouds(6)
    new, _ = clouds(6, seed=1)
    np.testing.assert_array_equal(taught("nmc", x, y).predict(new), NearestCentroid().fit(x, y).predict(new))


@pytest.mark.parametrize("shrinkage", [None, 0.01])
def test_how_the_examples_arrive_changes_nothing(shrinkage: float | None) -> None:
    x, y = (torch.from_numpy(part) for part in clouds(3))
    whole, parts = (ClassMeans(GaussianPrior(1.0), shrinkage) for _ in range(2))
    whole._add(x.double(), y, 3)
    for rows in torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).split(37):
        parts._add(x[rows].double(), y[rows], 3)
    for name, tensor in whole.state().items():
        torch.testing.assert_close(parts.state()[name], tensor, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["nmc", "slda"])
def test_a_stored_model_answers_and_learns_on_as_the_original(method: str, tmp_path: Path) -> None:
    x, y = clouds(6)
    model, old = taught(method, x, y), y < 4
    early = taught(method, x[old], y[old])
    early.save(tmp_path)
    later = ContinualClassifier.load(tmp_path)
    np.testing.assert_array_equal(later.predict_full(x).probabilities, early.predict_full(x).probabilities)
    later.learn_task(x[~old], y[~old])
    np.testing.assert_array_equal(later.predict_full(x).probabilities, model.predict_full(x).probabilities)


def test_a_class_of_its_own_is_a_task_too() -> None:
    x, y = clouds(2)
    model = ContinualClassifier("slda")
    for label in (0, 1):
        model.learn_task(x[y == label], y[y == label])
    assert model.score(x, y) > 0.8


def test_a_run_needs_no_steps(tmp_path: Path) -> None:
    results = run_benchmark(split_digits()[:2], tmp_path, method="nmc", settings=ALL)
    assert results.tgiven_final > 90
    assert (tmp_path / "metrics.jsonl").read_text().count('"iteration"') == 0


@pytest.mark.parametrize("method", ["nmc", "slda"])
def test_a_run_that_was_killed_between_tasks_resumes_exactly(method: str, tmp_path: Path) -> None:
    class Killed(NullObserver):
        def stage_ends(self, stage: Stage, scores: Sequence[float]) -> None:
            if stage.number == 1:
                raise KeyboardInterrupt

    def plan(folder: str) -> Plan:
        return Plan.of(build_config({}, {"method": method, "benchmark": "modes-2d"}, "test"), tmp_path / folder)

    whole = Run(plan("whole")).execute()
    with pytest.raises(KeyboardInterrupt):
        Run(plan("broken"), observer=Killed()).execute()
    resumed = Run(plan("broken")).execute(resume=True)
    assert resumed.tgiven_matrix == whole.tgiven_matrix
    first, second = (load_model(tmp_path / folder).learner.tensors(training=False) for folder in ("whole", "broken"))
    assert first.keys() == second.keys()
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def test_what_has_no_effect_or_no_meaning_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"training.iterations has no effect with nmc: .* closed form"):
        ContinualClassifier("nmc", settings={"training.iterations": 5})
    with pytest.raises(ConfigError, match=r"slda computes one linear layer .* mlp-10 has others; choose .* mlp"):
        ContinualClassifier("slda", "mlp-10")
    with pytest.raises(ConfigError, match="regression has no classes; choose joint"):
        ContinualRegressor("slda").learn_task(np.zeros((9, 2)), np.arange(9.0))
    with pytest.raises(ConfigError, match="covariance of 9000 inputs, more than 8192; choose nmc"):
        ContinualClassifier("slda").learn_task(np.random.default_rng(0).normal(size=(4, 9000)), [0, 1, 0, 1])
