"""Mixed answers of tasks that cannot be told apart are as certain as they are right."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.inference.calibration.pooling import (
    CAUTION_OF_LABELS,
    CAUTION_OF_TARGETS,
    GAINS,
    blend,
    common,
    evidence_of_labels,
    evidence_of_targets,
    most_probable_gain,
    narrowed,
    sharpened,
)
from metareplay.inference.calibration.taking import CALIBRATION

ONE = torch.ones((), dtype=torch.float64)
FAST = {"training.iterations": 60, "inference.samples": 20}


def test_labels_in_common() -> None:
    found = common([torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor([1, 2]), torch.tensor([3])])
    torch.testing.assert_close(found[0], torch.tensor([1, 1, 1 / 3, 0], dtype=torch.float64))
    torch.testing.assert_close(found, found.T)


def test_only_answers_of_several_tasks_with_common_labels_are_blended() -> None:
    shares = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5]], dtype=torch.float64)
    in_common = common([torch.tensor([0, 1]), torch.tensor([0, 1]), torch.tensor([2])])
    torch.testing.assert_close(blend(shares, in_common), torch.tensor([0, 0.5, 0], dtype=torch.float64))
    torch.testing.assert_close(blend(shares), torch.tensor([0, 0.5, 0.5], dtype=torch.float64))


def test_sharpening_keeps_the_order_of_labels() -> None:
    before = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.9, 0.0]], dtype=torch.float64)
    after = sharpened(before, torch.tensor([0.5, 0.0], dtype=torch.float64), ONE)
    torch.testing.assert_close(after[0], before[0] ** 1.5 / (before[0] ** 1.5).sum())
    torch.testing.assert_close(after[1], before[1])


def pooled_answers(experts: int, count: int = 4000) -> tuple[Tensor, Tensor, Tensor]:
    """Calibrated experts with independent errors, their mean, and whether it is right."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(2, (count,), generator=generator)
    clue = 2 * y - 1 + 1.5 * torch.randn(experts, count, generator=generator)
    of_one = torch.sigmoid(2 * clue / 1.5**2).double()  # p(y = 1 | clue), exactly
    mean = of_one.mean(0)
    return torch.stack([1 - mean, mean], 1), torch.full((count,), 1 - 1 / experts).double(), (mean > 0.5).long() == y


@pytest.mark.parametrize("experts", [2, 4])
def test_the_gain_makes_a_pool_of_calibrated_answers_as_certain_as_it_is_right(experts: int) -> None:
    probabilities, blended, right = pooled_answers(experts)
    gain = most_probable_gain(
        [evidence_of_labels(probabilities, blended, right, torch.ones(len(right)).double())], CAUTION_OF_LABELS
    )
    accuracy = float(right.double().mean())
    assert gain > 0.3
    assert float(probabilities.amax(1).mean()) < accuracy - 0.02
    assert float(sharpened(probabilities, blended, gain).amax(1).mean()) == pytest.approx(accuracy, abs=0.01)


def test_wrong_pools_are_not_sharpened() -> None:
    probabilities, blended, right = pooled_answers(2)
    evidence = evidence_of_labels(probabilities, blended, ~right, torch.ones(len(right)).double())
    assert most_probable_gain([evidence], CAUTION_OF_LABELS) == 0
    assert most_probable_gain([], CAUTION_OF_LABELS) == 0


@pytest.mark.parametrize("factor", [0.7, 1.0])
def test_the_gain_narrows_intervals_as_far_as_residuals_allow(factor: float) -> None:
    residuals = factor * torch.randn(2000, 2, generator=torch.Generator().manual_seed(0)).double()
    blended, std = torch.full((2000,), 0.5).double(), torch.ones(2000, 2).double()
    gain = most_probable_gain(
        [evidence_of_targets(residuals, std, blended, torch.ones(2000).double())], CAUTION_OF_TARGETS
    )
    assert float(narrowed(blended, gain)[0]) == pytest.approx(factor, abs=0.03)


def test_answers_that_do_not_count_say_nothing() -> None:
    probabilities, blended, right = pooled_answers(2)
    nothing = evidence_of_labels(probabilities, blended, right, torch.zeros(len(right)).double())
    torch.testing.assert_close(nothing, torch.zeros_like(GAINS))


def months(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    x = random.normal(size=(count, 150, 4))
    return [(part, (part[:, 0] * part[:, 1] + 0.5 * random.normal(size=150) > 0).astype(int)) for part in x]


def gain_of(model: ContinualClassifier | ContinualRegressor) -> float:
    assert model.learner is not None
    return float(model.learner.predictor.pooling_gain())


def without_gain(model: ContinualClassifier) -> None:
    assert model.learner is not None
    store = model.learner.predictor.task_statistics
    kept = [{name: value for name, value in of.items() if name != "pooling"} for of in store.known(CALIBRATION)]
    store.put(CALIBRATION, kept)


def test_months_that_follow_one_rule_get_more_certain_answers(tmp_path: Path) -> None:
    model = ContinualClassifier(settings=FAST, seed=0)
    for index, (x, y) in enumerate(months(4)):
        model.learn_task(x, y, name=str(index))
        assert index >= 2 or gain_of(model) == 0
    x = months(5)[-1][0]
    given, mixed = model.predict_proba(x, task="1"), model.predict_full(x)
    assert gain_of(model) > 0
    model.save(tmp_path / "model")
    loaded = ContinualClassifier.load(tmp_path / "model").predict_full(x)
    np.testing.assert_array_equal(loaded.probabilities, mixed.probabilities)
    without_gain(model)
    cautious = model.predict_full(x)
    assert mixed.probabilities.max(1).mean() > cautious.probabilities.max(1).mean() + 0.01
    np.testing.assert_array_equal(mixed.labels, cautious.labels)
    np.testing.assert_allclose(mixed.probabilities.sum(1), 1.0)
    np.testing.assert_array_equal(given, model.predict_proba(x, task="1"))


def test_tasks_without_common_labels_are_never_pooled() -> None:
    model = ContinualClassifier(settings=FAST, seed=0)
    for index, (x, y) in enumerate(months(3)):
        model.learn_task(x, 2 * index + y, name=str(index))
    assert gain_of(model) == 0
    assert model.learner is not None
    assert not any("pooling" in of for of in model.learner.predictor.task_statistics.known(CALIBRATION))


def test_the_evidence_of_a_removed_task_goes_with_it() -> None:
    model = ContinualClassifier(settings=FAST, seed=0)
    for index, (x, y) in enumerate(months(3)):
        model.learn_task(x, y, name=str(index))
    model.remove_task("2")
    assert gain_of(model) == 0


def test_mixed_targets_have_narrower_intervals() -> None:
    model = ContinualRegressor(settings=FAST, seed=0)
    for index, (x, _) in enumerate(months(3)):
        model.learn_task(x, x[:, 0] + 0.1 * x[:, 1], name=str(index))
    assert model.learner is not None
    x, store = months(4)[-1][0], model.learner.predictor.task_statistics
    stored = list(store.known(CALIBRATION))
    assert "pooling" in stored[2]

    def widths(certain: float, task: str | None) -> np.ndarray:
        """Of intervals, when the evidence is all for this gain."""
        store.put(CALIBRATION, [*stored[:2], {**stored[2], "pooling": -1e4 * (GAINS - certain).square()}])
        answer = model.predict_full(x, task)
        assert answer.lower is not None
        assert answer.upper is not None
        return answer.upper - answer.lower

    assert (widths(2.0, None) < 0.95 * widths(0.0, None)).mean() > 0.5
    np.testing.assert_array_equal(widths(2.0, "1"), widths(0.0, "1"))
