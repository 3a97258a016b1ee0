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


def test_few_held_out_examples_that_are_right_by_luck_hide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    y = torch.arange(20) % 2
    lucky, others = TaskData(torch.zeros(20, 1), y), TaskData(torch.ones(200, 1), torch.arange(200) % 2)

    def outputs(model: object, x: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        right = torch.nn.functional.one_hot(y, 2).double() if len(x) == 20 else torch.zeros(len(x), 2).double()
        return 5 * right.unsqueeze(0)  # (N, C) -> (1, N, C)

    monkeypatch.setattr(chance, "predictive_outputs", outputs)
    notice = chance.at_chance(None, 0, others, lucky, classes=True, seed=0)  # type: ignore[arg-type]
    assert notice is not None
    assert "training" in notice.text
    assert chance.at_chance(None, 0, lucky, lucky, classes=True, seed=0) is None  # type: ignore[arg-type]
