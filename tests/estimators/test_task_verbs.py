"""Tasks of an estimator: updated, renamed, removed, audited."""

import numpy as np
import pytest

from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.errors import ConfigError, DataError

QUICK = {"training.iterations": 150, "inference.samples": 5}


def blobs(labels: list[str], seed: int, shift: float = 0.0, count: int = 40) -> tuple[np.ndarray, list[str]]:
    rng = np.random.default_rng(seed)
    y = [labels[index % len(labels)] for index in range(count)]
    place = {"a": (0, 0), "b": (4, 0), "c": (0, 4), "d": (4, 4)}
    centres = np.array([place[label] for label in y]) + shift
    return (centres + 0.3 * rng.standard_normal((count, 2))).astype(np.float32), y


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    model = ContinualClassifier("pr-bbb", "mlp-10", seed=0, settings=QUICK)
    model.learn_task(*blobs(["a", "b"], 0), name="one").learn_task(*blobs(["a", "c"], 1, 2.0), name="two")
    path = str(tmp_path_factory.mktemp("verbs") / "model")
    model.save(path)
    return path


def test_an_update_with_a_new_class_keeps_the_old_ones(folder: str) -> None:
    model = ContinualClassifier.load(folder)
    model.update_task("one", *blobs(["d"], 2))
    assert model.tasks[0].classes == ("a", "b", "d")
    assert model.score(*blobs(["a", "b"], 5), task="one") > 0.9
    assert model.score(*blobs(["d"], 6), task="one") > 0.9
    assert model.score(*blobs(["a", "c"], 7, 2.0), task="two") > 0.75
    changed = {entry.task: entry.change for entry in model.audit()}
    assert changed["one"] == 0.0  # just learned
    assert 0 < changed["two"] < 0.3


def test_an_update_that_fails_leaves_the_model_as_it_was(folder: str) -> None:
    model = ContinualClassifier.load(folder)
    x = blobs(["a", "c"], 7, 2.0)[0]
    before = model.predict_proba(x)
    with pytest.raises(DataError, match="NaN"):
        model.update_task("one", np.array([[1.0, np.nan], [1.0, 1.0]]), ["a", "d"])
    with pytest.raises(DataError, match="unknown"):
        model.update_task("three", x, ["a"] * len(x))
    assert model.tasks[0].classes == ("a", "b")
    assert np.array_equal(model.predict_proba(x), before)


def test_a_task_is_renamed_and_removed(folder: str) -> None:
    model = ContinualClassifier.load(folder)
    x = blobs(["a", "c"], 7, 2.0)[0]
    before = model.predict_proba(x, task="two")
    with pytest.raises(ConfigError, match="already exists"):
        model.rename_task("one", "two")
    model.rename_task("one", "first").remove_task("first")
    assert model.task_names == ["two"]
    assert np.array_equal(model.predict_proba(x, task="two"), before[:, [0, 2]])
    with pytest.raises(ConfigError, match="only task"):
        model.remove_task("two")


def test_the_audit_sees_a_task_that_was_damaged(folder: str) -> None:
    model = ContinualClassifier.load(folder)
    honest = model.audit()
    assert honest[0].change is not None
    assert honest[0].change < 0.2
    assert honest[1].change == 0
    assert honest[0].divergence is not None
    assert honest[0].divergence["kind"] == "kl"
    assert honest[0].divergence["exact"]
    assert honest[1].divergence is not None
    assert honest[1].divergence["total"] == pytest.approx(0.0, abs=1e-3)
    assert model.learner is not None
    embeddings = model.learner.model.task_map.task_embeddings
    embeddings[0].data.copy_(embeddings[1].data)  # type: ignore[union-attr, index]
    damaged = model.audit()
    assert damaged[0].change is not None
    assert damaged[0].change > 0.2
    assert damaged[0].divergence is not None
    assert damaged[0].divergence["total"] > 2 * honest[0].divergence["total"]
    assert damaged[1].change == 0


def test_a_regression_task_is_updated_and_audited() -> None:
    x = np.linspace(-1, 1, 60, dtype=np.float32)[:, None]
    model = ContinualRegressor("pr-bbb", "mlp-10", seed=0, settings={"training.iterations": 300})
    model.learn_task(x, x[:, 0], name="up").learn_task(x + 5, -x[:, 0], name="down")
    model.update_task("up", x + 2, x[:, 0] + 2)
    assert model.audit()[0].change == 0
    assert model.score(x, x[:, 0], task="up") > 0.8
    with pytest.raises(DataError, match="columns"):
        model.update_task("up", x, np.hstack([x, x]))
