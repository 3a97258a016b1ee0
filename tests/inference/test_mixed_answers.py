"""Answers that mix tasks, and what they are calibrated by."""

from pathlib import Path

import numpy as np
import pytest
import torch

from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError
from metareplay.estimators import ContinualClassifier, ContinualRegressor
from metareplay.evaluation.evaluate import Evaluator
from metareplay.inference.adaptive import LOG_PREDICTIVE
from metareplay.inference.base import Assigned, Context
from metareplay.inference.calibration.taking import CALIBRATION
from metareplay.inference.mixing import entropy
from metareplay.inference.real_predictor import RealPredictor
from metareplay.learner.recipe_book import default_settings

QUICK = {"training.iterations": 200, "training.learning_rate": 0.01, "inference.samples": 20}


def same_classes(month: int, count: int = 90) -> tuple[np.ndarray, np.ndarray]:
    """Two noisy classes that hardly change from month to month."""
    random = np.random.default_rng(month)
    x = random.normal(size=(count, 2)).astype(np.float32)
    return x, np.where(x[:, 0] + 0.5 * random.normal(size=count) > 0, "yes", "no")


def noisy_line(month: int, count: int = 90) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(month)
    x = random.uniform(-1, 1, size=(count, 1)).astype(np.float32) + 3 * month
    return x, 2 * x[:, 0] + 0.5 * random.normal(size=count)


@pytest.fixture(scope="module")
def classifier() -> ContinualClassifier:
    model = ContinualClassifier("sp-bbb", "mlp-10", seed=0, settings=QUICK)
    for month in range(2):
        model.learn_task(*same_classes(month), name=f"month-{month}")
    return model


@pytest.fixture(scope="module")
def regressor() -> ContinualRegressor:
    model = ContinualRegressor("sp-bbb", "mlp-10", seed=0, settings=QUICK)
    for month in range(2):
        model.learn_task(*noisy_line(month), name=f"month-{month}")
    return model


def test_labels_are_summed_over_tasks(classifier: ContinualClassifier) -> None:
    x, y = same_classes(7, 300)
    answer = classifier.predict_full(x)
    assert answer.probabilities.shape == (300, 2)
    np.testing.assert_allclose(answer.probabilities.sum(1), 1.0)
    given = [classifier.predict_full(x, task) for task in range(2)]
    assert answer.task_probabilities is not None
    assert answer.known is not None
    known = answer.known & given[0].known & given[1].known
    mixed = sum(answer.task_probabilities[:, [task]] * given[task].probabilities for task in range(2))
    np.testing.assert_allclose(answer.probabilities[known], mixed[known], atol=0.05)  # fewer weight samples
    assert np.mean(answer.labels == y) >= max(np.mean(each.labels == y) for each in given) - 0.05


def test_uncertainties_are_coherent(classifier: ContinualClassifier) -> None:
    answer = classifier.predict_full(same_classes(7)[0])
    entropy = -(answer.probabilities * np.log(answer.probabilities)).sum(1)
    np.testing.assert_allclose(answer.total, entropy, atol=1e-9)
    np.testing.assert_allclose(answer.total, answer.aleatoric + answer.epistemic, atol=1e-12)
    assert answer.epistemic.min() >= 0
    assert answer.total.max() <= np.log(2) + 1e-9


def test_tasks_that_disagree_are_uncertain_about_what_can_be_learned(
    classifier: ContinualClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor, one = classifier._trained().predictor, torch.ones(1, dtype=torch.float64)
    monkeypatch.setattr(predictor, "pooling_gain", lambda: torch.tensor(2.0, dtype=torch.float64))

    def assigned(task: int, *probabilities: float) -> Assigned:
        of_task = torch.tensor([probabilities], dtype=torch.float64)  # of point estimates, which have one entropy
        statistics = {LOG_PREDICTIVE: of_task.log(), "total": entropy(of_task), "aleatoric": entropy(of_task)}
        return Assigned(task, torch.tensor([0]), statistics, 0.5 * one)

    both = [assigned(0, 0.9, 0.1), assigned(1, 0.3, 0.7)]
    context = Context(torch.tensor([0]), torch.tensor([0, 1, 0, 1]), unknown=0 * one)
    answer = predictor._answer(both, context)
    # mixed: 0.6 and 0.4; sharpened to the power 1 + 2 * 0.5: 9 / 13 and 4 / 13
    mixed, given = 0.6730116670, 0.6172417698
    parts = (0.3250829734 + 0.6108643021) / 2
    assert answer.total.item() == pytest.approx(given, abs=1e-9)
    assert answer.aleatoric.item() == pytest.approx(parts * given / mixed, abs=1e-9)
    assert answer.epistemic.item() == pytest.approx(given * (1 - parts / mixed), abs=1e-9)  # 0.188
    agreeing = predictor._answer([assigned(0, 0.9, 0.1), assigned(1, 0.9, 0.1)], context)
    assert agreeing.total.item() < 0.1  # 81 / 82
    assert agreeing.epistemic.item() == pytest.approx(0.0, abs=1e-12)


def test_far_from_all_data_nothing_is_known(classifier: ContinualClassifier) -> None:
    direction = np.array([[1.0, 0.3]], dtype=np.float32)
    answer = classifier.predict_full(np.concatenate([direction * far for far in (1, 3, 10, 100)]))
    assert answer.known is not None
    assert answer.known.tolist()[::3] == [True, False]
    confidence = answer.probabilities.max(1)
    assert confidence[0] > 0.8
    assert confidence[3] < 0.6  # the class frequencies
    assert answer.epistemic[3] > 0.5
    assert answer.task_probabilities is not None
    np.testing.assert_allclose(answer.task_probabilities[3], 0.5, atol=0.05)


def test_an_answer_does_not_depend_on_its_neighbours(classifier: ContinualClassifier) -> None:
    x = same_classes(7)[0]
    together, single = classifier.predict_full(x), classifier.predict_full(x[4:5])
    np.testing.assert_allclose(together.probabilities[4:5], single.probabilities, atol=1e-6)


def test_calibration_is_stored(classifier: ContinualClassifier, regressor: ContinualRegressor, tmp_path: Path) -> None:
    x = same_classes(7)[0]
    classifier.save(tmp_path / "classes")
    again = ContinualClassifier.load(tmp_path / "classes")
    assert np.array_equal(again.predict_proba(x), classifier.predict_proba(x))
    regressor.save(tmp_path / "targets")
    before, after = (
        regressor.predict_full(x[:, :1]),
        ContinualRegressor.load(tmp_path / "targets").predict_full(x[:, :1]),
    )
    assert np.array_equal(before.upper, after.upper)  # type: ignore[arg-type]
    raw = ContinualClassifier.load(tmp_path / "classes", settings={"inference.calibrate": False})
    probabilities = raw.predict_proba(x)
    assert not np.allclose(probabilities, classifier.predict_proba(x))
    chosen = np.array(raw.predict_task(x))
    for task in raw.task_names:  # as published: the chosen task alone answers
        rows = chosen == task
        np.testing.assert_allclose(probabilities[rows], raw.predict_proba(x[rows], task), atol=1e-6)


def test_published_settings_compute_as_published() -> None:
    assert default_settings("split-mnist", "pr-bbb", "mlp-400-400", published=True)[0]["inference.calibrate"] is False
    assert "inference.calibrate" not in default_settings("split-mnist", "pr-bbb", "mlp-400-400")[0]


def test_intervals_contain_most_targets(regressor: ContinualRegressor) -> None:
    inside = []
    for month in range(2):
        random = np.random.default_rng(10 + month)
        x = random.uniform(-1, 1, size=(400, 1)).astype(np.float32) + 3 * month
        y = 2 * x[:, 0] + 0.5 * random.normal(size=400)
        for task in (month, None):
            answer = regressor.predict_full(x, task)
            assert answer.lower is not None
            assert answer.upper is not None
            assert answer.epistemic is not None
            assert (answer.std > answer.epistemic).all()
            inside.append(np.mean((answer.lower <= y) & (y <= answer.upper)))
    assert min(inside) > 0.85
    assert 0.9 < np.mean(inside) < 0.99


def test_intervals_are_as_wide_as_asked(regressor: ContinualRegressor, tmp_path: Path) -> None:
    x = noisy_line(0)[0]
    regressor.save(tmp_path)
    half = ContinualRegressor.load(tmp_path, settings={"inference.coverage": 0.5}).predict_full(x, 0)
    most = regressor.predict_full(x, 0)
    assert (half.upper - half.lower).mean() < 0.6 * (most.upper - most.lower).mean()  # type: ignore[operator]
    with pytest.raises(ConfigError, match=r"inference\.coverage"):
        ContinualRegressor.load(tmp_path, settings={"inference.coverage": 1.5})


def test_intervals_widen_far_from_all_data(regressor: ContinualRegressor) -> None:
    answer = regressor.predict_full(np.array([[0.0], [30.0], [300.0]], dtype=np.float32))
    width = answer.upper - answer.lower  # type: ignore[operator]
    assert width[2] > width[1] > 3 * width[0]


def weak_columns(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 10)).astype(np.float32)
    return x, x @ np.linspace(0.1, 0.4, 10) + random.normal(size=rows)


def test_a_line_counts_where_a_network_follows_chance(tmp_path: Path) -> None:
    model = ContinualRegressor("pr-bbb", "mlp-30", seed=0, settings={**QUICK, "training.iterations": 600})
    model.learn_task(*weak_columns(100, 0), name="only")
    predictor, (x, y) = model.learner.predictor, weak_columns(500, 1)
    assert isinstance(predictor, RealPredictor)
    correction = predictor.calibration(0)
    assert correction.share is not None
    assert correction.linear is not None
    assert correction.linear.shape == (11, 1)
    answer = model.predict_full(x, "only")
    assert answer.lower is not None
    assert answer.upper is not None
    assert 0.9 < np.mean((answer.lower <= y) & (y <= answer.upper)) < 0.99
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(ContinualRegressor.load(tmp_path / "model").predict(x, "only"), answer.mean)
    test = TaskData(model._inputs(x), model.scaling.y(torch.tensor(y).float().unsqueeze(1)))
    evaluator = Evaluator(predictor)
    mixed, raw = evaluator.given(0, test), evaluator.raw(0, test)
    assert mixed < 0.95 * raw  # squared errors

    stored = predictor.task_statistics.of(CALIBRATION, 1)
    earlier = [{name: value for name, value in stored[0].items() if name not in ("share", "linear")}]
    predictor.task_statistics.put(CALIBRATION, earlier)  # as models of earlier versions have it
    assert evaluator.given(0, test) == pytest.approx(raw)
    network = predictor.statistics(test.x, [0], predictor.wanted)[0]["mean"]
    assert torch.equal(predictor.predict(test.x, 0).mean, network)
    uncalibrated = ContinualRegressor.load(tmp_path / "model", settings={"inference.calibrate": False})
    np.testing.assert_array_equal(uncalibrated.predict(x, "only"), model.predict(x, "only"))


def test_one_network_of_all_tasks_has_no_line() -> None:
    model = ContinualRegressor("fine-tuning", "mlp-30", seed=0, settings={**QUICK, "inference.calibrate": True})
    model.learn_task(*weak_columns(100, 0), name="only")
    predictor = model.learner.predictor
    assert isinstance(predictor, RealPredictor)
    assert predictor.one_answer
    assert predictor.calibrated
    assert predictor.calibration(0).share is None
