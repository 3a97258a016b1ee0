"""Tasks that do no better than chance are warned about: by estimators, and in the results of runs."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.benchmarks import stream_benchmark
from metareplay.benchmarks.base import TaskData
from metareplay.errors import MetaReplayWarning, TrainingWarning
from metareplay.experiments.run_benchmark import run_benchmark
from metareplay.learner import chance

QUICK = {"training.iterations": 150, "training.learning_rate": 0.01, "inference.samples": 5}
NEVER = {**QUICK, "training.learning_rate": 1e-9}


def points(count: int = 80, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 3))


def striped(x: np.ndarray) -> np.ndarray:
    """Classes that no network tells apart by the luck of its start."""
    return np.sin(9 * x[:, 0]) > 0


@pytest.mark.parametrize("count", [80, 1500])
def test_a_classifier_that_learns_nothing_warns(count: int) -> None:
    x = points(count)
    with pytest.warns(TrainingWarning) as found:
        ContinualClassifier("pr-dirac", "mlp-4", settings=NEVER).learn_task(x, striped(x), name="may")
    texts = [str(warning.message) for warning in found]
    where = "training" if count < 200 else "held-out"
    assert any("task 'may'" in text and "no better than chance" in text and where in text for text in texts)
    assert issubclass(found[0].category, MetaReplayWarning)
    assert found[0].filename == __file__  # it points to the user's call


def test_nearly_all_examples_of_one_label_are_named_as_the_cause() -> None:
    x = points()
    with pytest.warns(TrainingWarning, match="9[0-9] % of them have one label, and the others are too few"):
        ContinualClassifier("pr-dirac", "mlp-4", settings=NEVER).learn_task(x, np.arange(80) < 5)


@pytest.mark.parametrize(("channels", "told"), [(3, True), (1, False)])
def test_photos_have_advice_of_their_own(channels: int, told: bool) -> None:
    x = np.random.default_rng(0).normal(size=(80, channels, 4, 4))
    with pytest.warns(TrainingWarning) as found:
        ContinualClassifier("pr-dirac", "mlp-4", settings=NEVER).learn_task(x, np.arange(80) % 2)
    assert any("network=resnet-32, or features:NAME" in str(warning.message) for warning in found) == told


def test_what_is_learned_is_not_warned_about() -> None:
    x = points()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ContinualClassifier("pr-dirac", "mlp-8", settings=QUICK)
        model.learn_task(x, x[:, 0] > 0).learn_task(x, ["alone"] * len(x))
        rare = np.arange(80) < 6  # accuracy is not what counts: always "common" would be right for 92 %
        model.learn_task(x + 4 * rare[:, None], np.where(rare, "rare", "common"))
        ContinualRegressor("pr-dirac", "mlp-8", settings=QUICK).learn_task(x, x[:, 0])


def test_a_regressor_no_better_than_the_mean_warns() -> None:
    x = points()
    with pytest.warns(TrainingWarning, match="no better than the mean: R² is"):
        ContinualRegressor("pr-dirac", "mlp-4", settings=NEVER).learn_task(x, -x[:, 0])


def test_a_model_is_left_unchanged_if_a_warning_is_made_an_error() -> None:
    x = points()
    model = ContinualClassifier("pr-dirac", "mlp-4", settings=NEVER)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TrainingWarning):
            model.learn_task(x, striped(x))
    assert model.task_names == []


def test_a_run_says_so_in_its_log_and_results(tmp_path: Path) -> None:
    x = torch.tensor(points(), dtype=torch.float32)
    stream = [torch.utils.data.TensorDataset(x, (torch.sin(9 * x[:, task]) > 0).long()) for task in range(2)]
    results = run_benchmark(
        stream_benchmark(stream), tmp_path / "run", method="pr-dirac", network="mlp-4", settings=NEVER
    )
    assert {(warning.task, warning.kind) for warning in results.warnings} >= {
        ("task-0", "chance"),
        ("task-1", "chance"),
    }
    stored = json.loads((tmp_path / "run" / "results.json").read_text())["warnings"]
    assert stored == [warning.model_dump() for warning in results.warnings]
    assert stored[-1]["text"] in (tmp_path / "run" / "log.txt").read_text()


def known(right: torch.Tensor, y: torch.Tensor, noise: torch.Tensor) -> TaskData:
    """Examples that are answered as their first column says."""
    return TaskData(torch.stack([torch.where(right, y, 1 - y).float(), noise], 1), y)


@pytest.fixture
def as_first_column(monkeypatch: pytest.MonkeyPatch) -> None:
    def outputs(model: object, x: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        return 5 * torch.nn.functional.one_hot(x[:, 0].long(), 2).double().unsqueeze(0)  # (N, C) -> (1, N, C)

    monkeypatch.setattr(chance, "predictive_outputs", outputs)


@pytest.mark.usefixtures("as_first_column")
def test_few_held_out_examples_that_are_right_by_luck_hide_nothing() -> None:
    y, noise = torch.arange(20) % 2, torch.linspace(-1, 1, 20)
    lucky = known(torch.ones(20, dtype=torch.bool), y, noise)
    unlearned = TaskData(torch.zeros(20, 2), y)
    notice = chance.at_chance(None, 0, unlearned, lucky, classes=True, seed=0)  # type: ignore[arg-type]
    assert notice is not None
    assert "50 % of its training examples" in notice.text
    assert chance.at_chance(None, 0, lucky, lucky, classes=True, seed=0) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("right", "warned"), [(0.5, True), (0.57, True), (0.75, False)])
@pytest.mark.usefixtures("as_first_column")
def test_what_was_only_memorised_is_warned_about(right: float, warned: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(300) % 2
    by_heart = TaskData(torch.stack([y.float(), torch.zeros(300)], 1), y)
    held_out = known(torch.arange(60) < right * 60, y[torch.randperm(60, generator=generator)], torch.zeros(60))

    def unrelated(x: torch.Tensor, y: torch.Tensor, classes: int) -> torch.Tensor:
        return torch.arange(len(y)) % 5 // 3 if right < 0.7 else y

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chance, "answers_when_left_out", unrelated)
        notice = chance.at_chance(None, 0, by_heart, held_out, classes=True, seed=0)  # type: ignore[arg-type]
    assert (notice is not None) == warned
    if notice is not None:
        assert "of its 60 held-out examples" in notice.text
        assert "300 of its training examples without these (kernel regression)" in notice.text


@pytest.mark.usefixtures("as_first_column")
def test_few_new_examples_of_a_known_task_are_not_tested() -> None:
    y = torch.arange(12) % 2
    new = known(torch.arange(12) < 10, y, torch.linspace(-1, 1, 12))
    none = TaskData(new.x[:0], y[:0])
    assert chance.at_chance(None, 0, new, none, classes=True, seed=0, revised=True) is None  # type: ignore[arg-type]


def test_labels_that_nothing_determines_are_warned_about_even_if_they_are_known_by_heart() -> None:
    x, labels = points(120), np.random.default_rng(1).integers(0, 2, 120)
    model = ContinualClassifier("pr-dirac", "mlp-64", settings={**QUICK, "training.iterations": 600})
    with pytest.warns(TrainingWarning, match="of 120 of its training examples without these"):
        model.learn_task(x, labels)
    assert model.score(x, labels, task=0) > 0.8
    regressor = ContinualRegressor("pr-dirac", "mlp-64", settings={**QUICK, "training.iterations": 600})
    with pytest.warns(TrainingWarning, match="no better than the mean: R² is .* without these"):
        regressor.learn_task(x, points(120, seed=2)[:, 0])


def test_the_variance_is_that_over_permutations_of_labels() -> None:
    generator = torch.Generator().manual_seed(0)
    answers, y = torch.randint(3, (40,), generator=generator), torch.randint(3, (40,), generator=generator)
    orders = [torch.randperm(40, generator=generator) for _ in range(3000)]
    gains = torch.tensor([chance._of_labels(answers, y[order], "").gain for order in orders])
    assert chance._of_labels(answers, y, "").variance == pytest.approx(float(gains.var()), rel=0.1)
    assert chance._of_labels(torch.zeros_like(y), y, "").variance == pytest.approx(0.0, abs=1e-12)
