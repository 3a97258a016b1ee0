"""Streams without boundaries: new tasks are noticed and learned, known ones are recognised."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from metareplay import ContinualClassifier, ContinualRegressor, Stream
from metareplay.errors import ConfigError, DataError

FAST: dict[str, Any] = {"training.iterations": 60, "inference.samples": 5}
STREAM = {"grace": 120, "window": 15}
CENTRES = {"a": (0.0, 0.0), "b": (8.0, 0.0), "c": (0.0, 8.0)}


def segment(place: str, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two classes around a centre, told apart by the third column."""
    y = rng.integers(0, 2, count)
    x = np.column_stack([rng.normal(CENTRES[place], 0.7, (count, 2)), 2.0 * y + rng.normal(0, 0.3, count)])
    return x, np.array([f"{place}{label}" for label in y])


def joined(places: str, count: int = 180) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    parts = [segment(place, count, rng) for place in places]
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def batches(x: Any, y: Any, size: int = 33) -> Iterator[tuple[Any, Any]]:
    for start in range(0, len(x), size):
        yield x[start : start + size], y[start : start + size]


def learned(places: str, **settings: Any) -> tuple[ContinualClassifier, Any]:
    model = ContinualClassifier(network="mlp-10", seed=0, settings=FAST)
    return model, model.learn_stream(batches(*joined(places)), settings={**STREAM, **settings})


@pytest.fixture(scope="module")
def followed() -> tuple[ContinualClassifier, Any]:
    return learned("abcab")


def test_every_new_task_is_learned_once_and_returning_ones_are_recognised(followed: Any) -> None:
    model, report = followed
    assert model.task_names == ["task-0", "task-1", "task-2"]
    assert [event.task for event in report.of("learned")] == model.task_names
    assert [event.task for event in report.of("returned")] == ["task-0", "task-1"]


def test_boundaries_are_noticed_within_a_window_without_false_alarms(followed: Any) -> None:
    found = followed[1].against([180, 360, 540, 720])
    assert (found.missed, found.false_alarms) == (0, 0)
    assert max(found.delays) <= 15


def test_the_first_examples_of_a_task_are_not_taken_for_the_last_of_another(followed: Any) -> None:
    began = [event.began for event in followed[1].of("boundary")]
    assert all(abs(found - true) <= 2 for found, true in zip(began, [180, 360, 540, 720], strict=True))


def test_the_model_answers_for_all_tasks(followed: Any) -> None:
    x, y = joined("abc", 60)
    assert followed[0].score(x, y) > 0.9


@pytest.mark.parametrize("change", [{"signals": ("strangeness",)}, {"detector": "adwin"}], ids=["no labels", "adwin"])
def test_other_signals_and_detectors_notice_the_same_boundary(change: dict[str, Any]) -> None:
    _, report = learned("ab", **change)
    found = report.against([180])
    assert (len(found.delays), found.false_alarms) == (1, 0)


def test_changed_labels_are_noticed_by_the_loss_alone() -> None:
    x, y = joined("aa")
    swapped = np.where(np.arange(len(y)) < 180, y, np.where(y == "a0", "a1", "a0"))
    model = ContinualClassifier(network="mlp-10", seed=0, settings=FAST)
    report = model.learn_stream(batches(x, swapped), settings={**STREAM, "signals": ("loss",)})
    assert len(report.against([180]).delays) == 1
    assert len(model.tasks) == 2


def test_a_stream_goes_on_with_a_stored_model(followed: Any, tmp_path: Any) -> None:
    followed[0].save(tmp_path / "model")
    model = ContinualClassifier.load(tmp_path / "model")
    report = model.learn_stream(batches(*joined("b", 60)), settings=STREAM)
    assert [(event.kind, event.task) for event in report.events] == [("returned", "task-1")]


def test_single_examples_by_name_as_in_river() -> None:
    x, y = joined("a", 140)
    model = ContinualClassifier(network="mlp-10", seed=0, settings=FAST)
    stream = Stream(model, STREAM)
    rows = [{"first": a, "second": b, "side": "up" if c > 1 else "down"} for a, b, c in x.tolist()]
    assert stream.predict_one(rows[0]) is None
    for row, label in zip(rows, y, strict=True):
        stream.learn_one(row, label)
    assert model.task_names == ["task-0"]
    assert stream.predict_one(rows[0]) == y[0]
    assert np.mean([stream.predict_one(row) == label for row, label in zip(rows[:40], y[:40], strict=True)]) > 0.9


def test_estimators_have_rivers_two_methods() -> None:
    model = ContinualClassifier(network="mlp-10", seed=0, settings=FAST)
    assert model.predict_one([0.0, 1.0]) is None
    assert model.learn_one([0.0, 1.0], "a") is model


def test_columns_of_data_frames_are_described_by_all_first_rows() -> None:
    x, y = joined("a", 130)
    frame = pd.DataFrame({"first": x[:, 0], "side": np.where(np.arange(130) < 100, "left", "right")})
    model = ContinualClassifier(network="mlp-10", seed=0, settings=FAST)
    model.learn_stream(((frame[i : i + 40], y[i : i + 40]) for i in range(0, 130, 40)), settings=STREAM)
    described = next(column for column in model.inputs["columns"] if column["name"] == "side")
    assert {"left", "right"} <= set(described["values"])


def test_too_few_examples_at_the_end_are_left_out_and_reported() -> None:
    model = ContinualClassifier(network="mlp-10", seed=0, settings=FAST)
    report = model.learn_stream(batches(*joined("a", 30)), settings=STREAM)
    assert [event.kind for event in report.events] == ["unlearned"]
    assert not model.tasks


def test_regression_streams() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(place, 1, (180, 1)) for place in (0, 12)])
    y = np.where(x < 6, x, 20 - x) + rng.normal(0, 0.1, x.shape)
    model = ContinualRegressor(network="mlp-10", seed=0, settings=FAST)
    report = model.learn_stream(batches(x, y), settings=STREAM)
    assert len(report.against([180]).delays) == 1
    assert len(model.tasks) == 2


def test_what_cannot_be_followed_is_refused() -> None:
    model = ContinualClassifier(settings={"statistics.collect": False})
    with pytest.raises(ConfigError, match="strangeness needs statistics of every task"):
        Stream(model)
    with pytest.raises(DataError, match="give pairs"):
        ContinualClassifier().learn_stream([np.zeros((3, 2))])  # type: ignore[list-item]


def test_a_task_that_lasts_is_refined() -> None:
    model = ContinualClassifier(network="mlp-10", seed=0, settings=FAST)
    report = model.learn_stream(batches(*joined("a", 320)), settings={**STREAM, "refine": True})
    assert [event.kind for event in report.events] == ["learned", "refined"]
    assert model.task_names == ["task-0"]
