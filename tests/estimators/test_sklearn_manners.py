"""Estimators in scikit-learn's tools: parameters, clones, pipelines, cross-validation, data frames by name."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas
import polars
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.errors import ConfigError, DataError, MetaReplayError, NotTrainedError

Array = npt.NDArray[Any]
QUICK: dict[str, Any] = {"training.iterations": 40, "training.learning_rate": 0.05, "inference.samples": 2}


def classifier(method: str = "sp-dirac", **more: Any) -> ContinualClassifier:
    return ContinualClassifier(method, "mlp-8", seed=1, settings={**QUICK, **more})


def blobs(task: int = 0, rows: int = 60) -> tuple[Array, Array]:
    random, y = np.random.default_rng(task), np.arange(rows) % 2
    return random.normal(size=(rows, 3)) + 6 * y[:, None] + 20 * task, np.array(["no", "yes"])[y]


@pytest.fixture(scope="module")
def trained() -> ContinualClassifier:
    return classifier("pr-bbb").learn_task(*blobs(), name="spring").learn_task(*blobs(1), name="summer")


def test_parameters_are_kept_as_given() -> None:
    settings = dict(QUICK)
    model = ContinualClassifier("sp-dirac", None, standardise=False, settings=settings)
    assert model.get_params() == {
        "method": "sp-dirac", "network": None, "seed": None, "standardise": False, "settings": settings
    }  # fmt: skip
    assert model.get_params()["settings"] is settings
    assert model.config.network == "mlp-64-64"
    again = clone(model)
    assert again.get_params() == model.get_params()
    assert again.config == model.config
    assert again.task_names == []


def test_a_clone_of_a_loaded_model_learns_as_the_stored_one_did(trained: ContinualClassifier, tmp_path: Path) -> None:
    trained.save(tmp_path)
    loaded = ContinualClassifier.load(tmp_path)
    assert clone(loaded).config == trained.config
    again = clone(loaded).learn_task(*blobs(), name="spring").learn_task(*blobs(1), name="summer")
    assert np.array_equal(again.predict_proba(blobs()[0]), trained.predict_proba(blobs()[0]))


def test_settings_are_set_by_their_own_names() -> None:
    model = classifier().set_params(method="pr-bbb", **{"training.iterations": 7})
    assert (model.config.method, model.config.training.iterations) == ("pr-bbb", 7)
    assert model.settings == {**QUICK, "training.iterations": 7}
    assert clone(model).config == model.config


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"colour": 1}, "has no parameter 'colour'; it has method, network"),
        ({"method": "pr-bb"}, "did you mean pr-bbb"),
        ({"training.iteration": 5}, "did you mean training.iterations"),
        ({"settings": 5}, "not a mapping"),
        ({"seed": -1}, "seed"),
    ],
)
def test_a_refused_parameter_changes_nothing(params: dict[str, Any], message: str) -> None:
    model = classifier()
    before, config = model.get_params(), model.config
    with pytest.raises(ConfigError, match=message) as caught:
        model.set_params(**params)
    assert isinstance(caught.value, ValueError)
    assert (model.get_params(), model.config) == (before, config)


def test_a_trained_model_keeps_its_settings_until_it_is_fitted_anew() -> None:
    model = classifier().fit(*blobs())
    model.set_params(**{"training.iterations": 3})
    assert model.config.training.iterations == 40
    assert model.fit(*blobs()).config.training.iterations == 3


def test_fit_starts_anew_and_partial_fit_goes_on() -> None:
    model = classifier().fit(*blobs(), name="spring")
    model.partial_fit(*blobs(1), task="summer")
    assert model.task_names == ["spring", "summer"]
    fresh = classifier().fit(*blobs(1))
    assert model.fit(*blobs(1)).task_names == ["task-0"]
    assert np.array_equal(model.predict_proba(blobs(1)[0]), fresh.predict_proba(blobs(1)[0]))


def test_a_failed_fit_leaves_the_model_as_it_was(trained: ContinualClassifier) -> None:
    x, _ = blobs()
    before = trained.predict_proba(x)
    with pytest.raises(DataError, match="60 inputs but 2 labels") as caught:
        trained.fit(x, [0, 1])
    assert isinstance(caught.value, ValueError)
    assert trained.task_names == ["spring", "summer"]
    assert np.array_equal(trained.predict_proba(x), before)


def test_partial_fit_goes_on_with_a_known_task() -> None:
    x, y = blobs()
    model = classifier("sp-bbb").partial_fit(x[:30], y[:30])
    assert model.task_names == ["task-0"]
    before = model.predict_proba(x)
    assert model.partial_fit(x[30:], y[30:]) is model
    assert model.task_names == ["task-0"]
    assert not np.array_equal(model.predict_proba(x), before)
    model.partial_fit(x, np.where(y == "no", "new", "yes"), task="task-0")
    assert model.classes_.tolist() == ["no", "yes", "new"]


def test_classes_are_an_array_in_the_order_in_which_they_were_learned(trained: ContinualClassifier) -> None:
    assert isinstance(trained.classes_, np.ndarray)
    assert trained.classes_.tolist() == ["no", "yes"]
    assert trained.predict(blobs()[0]).dtype == trained.classes_.dtype
    mixed = classifier().learn_task(*blobs()).learn_task(blobs(1)[0], [3, 4] * 30)
    assert mixed.classes_.tolist() == ["no", "yes", 3, 4]
    assert mixed.predict(blobs(1)[0]).dtype == object


def test_what_kind_of_estimator_it_is() -> None:
    assert is_classifier(ContinualClassifier())
    assert is_regressor(ContinualRegressor())
    assert not hasattr(ContinualClassifier(), "n_features_in_")


def test_a_model_without_tasks_is_not_fitted(trained: ContinualClassifier) -> None:
    with pytest.raises(NotFittedError):
        check_is_fitted(classifier())
    with pytest.raises(NotFittedError) as caught:
        classifier().predict(blobs()[0])
    assert isinstance(caught.value, NotTrainedError)
    assert isinstance(caught.value, MetaReplayError)
    check_is_fitted(trained)


@pytest.mark.parametrize("library", [pandas, polars])
def test_columns_of_data_frames_go_by_name(library: Any) -> None:
    x, y = blobs()
    frame = library.DataFrame({"width": x[:, 0], "height": x[:, 1], "colour": ["red", "blue"] * 30})
    model = classifier().fit(frame, y)
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == ["width", "height", "colour"]
    assert model.feature_names_in_.dtype == object
    turned = frame[["colour", "width", "height"]]
    assert np.array_equal(model.predict_proba(turned), model.predict_proba(frame))
    assert model.score(frame, y) > 0.9
    assert cross_val_score(classifier(), frame, y, cv=3).mean() > 0.9


def test_arrays_have_no_names(trained: ContinualClassifier) -> None:
    assert trained.n_features_in_ == 3
    assert not hasattr(trained, "feature_names_in_")


def test_a_pipeline_is_fitted_scored_and_cloned() -> None:
    x, y = blobs()
    pipeline = make_pipeline(StandardScaler(), classifier()).fit(x, y)
    assert pipeline.score(x, y) > 0.9
    assert pipeline.predict_proba(x).shape == (60, 2)
    assert clone(pipeline).fit(x, y).predict(x).tolist() == pipeline.predict(x).tolist()
    numbers = (y == "yes").astype(float)
    regressor = ContinualRegressor("sp-dirac", "mlp-8", seed=1, settings=QUICK)
    assert make_pipeline(StandardScaler(), regressor).fit(x, numbers).score(x, numbers) > 0.5


def test_one_task_is_cross_validated_and_its_settings_are_searched() -> None:
    x, y = blobs()
    assert cross_val_score(classifier(), x, y, cv=3).mean() > 0.9
    assert cross_val_score(classifier(), x, y, cv=2, scoring="roc_auc").mean() > 0.9
    search = GridSearchCV(classifier(), {"training.iterations": [1, 40]}, cv=2).fit(x, y)
    assert search.best_params_ == {"training.iterations": 40}


@pytest.mark.parametrize("way", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_predicts_and_learns_the_same(trained: ContinualClassifier, way: Any) -> None:
    again, x = way(trained), blobs()[0]
    assert again.get_params() == trained.get_params()
    assert np.array_equal(again.predict_proba(x), trained.predict_proba(x))
    more = copy.deepcopy(trained)
    for model in (again, more):
        model.learn_task(*blobs(2), name="autumn")
    assert np.array_equal(again.predict_proba(x), more.predict_proba(x))
    assert trained.task_names == ["spring", "summer"]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones((4, 3)) * 1j, "Complex data not supported"),
        (np.ones((4, 0)), "0 feature"),
        (np.ones(3), "Reshape your data"),
        (np.ones((4, 2)), "X has 2 features, but ContinualClassifier is expecting 3 features as input"),
    ],
)
def test_inputs_that_no_model_can_use(trained: ContinualClassifier, x: Array, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        trained.predict(x)
    assert isinstance(caught.value, DataError)


def test_sparse_inputs_are_refused_in_words() -> None:
    from scipy.sparse import csr_array

    with pytest.raises(DataError, match=r"sparse input is not supported; give X\.toarray\(\)"):
        classifier().fit(csr_array(np.eye(4)), [0, 1, 0, 1])
