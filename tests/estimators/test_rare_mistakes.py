"""Rare mistakes with estimators have clear errors too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.errors import CheckpointError, ConfigError, DataError, MetaReplayError, TrainingDiverged
from metareplay.learner.model_file import pack, read_model_file

QUICK: dict[str, Any] = {"training.iterations": 6, "inference.samples": 4}


def blobs(classes: int, task: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    y = np.arange(30) % classes
    return np.random.default_rng(task).normal(size=(30, 4)) + y[:, None], y + 10 * task


def test_joint_training_after_loading_is_refused_every_time(tmp_path: Path) -> None:
    ContinualClassifier("joint", "mlp-4", settings=QUICK).learn_task(*blobs(2, 0)).save(tmp_path)
    again = ContinualClassifier.load(tmp_path)
    for _ in range(2):
        with pytest.raises(ConfigError, match="earlier tasks"):
            again.learn_task(*blobs(2, 1))


X, Y = blobs(2, 0)
MISTAKES: list[tuple[str, Callable[[ContinualClassifier], object], type[MetaReplayError]]] = [
    ("list in a tuple", lambda m: m.learn_task(X, [("a", [int(label)]) for label in Y]), DataError),
    ("one label", lambda m: m.learn_task(X, 5), DataError),  # type: ignore[arg-type]
    ("one-hot tensors", lambda m: m.learn_task(X, [torch.eye(2)[label] for label in Y]), DataError),
    ("no batch", lambda m: m.predict(X, batch_wise=0), ConfigError),
    ("negative batch", lambda m: m.predict(X, batch_wise=-3), ConfigError),
    ("criterion with a task", lambda m: m.predict(X, task=0, criterion="luck"), ConfigError),
    ("unknown network", lambda m: ContinualClassifier(network="mlp-0"), ConfigError),
]


@pytest.mark.parametrize(
    ("call", "error"), [mistake[1:] for mistake in MISTAKES], ids=[mistake[0] for mistake in MISTAKES]
)
def test_rarer_mistakes(call: Callable[[ContinualClassifier], object], error: type[MetaReplayError]) -> None:
    model = ContinualClassifier("sp-bbb", "mlp-4", settings=QUICK).learn_task(X, Y)
    with pytest.raises(error):
        call(model)


def test_an_unknown_criterion_is_refused_by_a_shared_softmax() -> None:
    model = ContinualClassifier("joint", "mlp-4", settings=QUICK).learn_task(X, Y)
    with pytest.raises(ConfigError, match="is unknown"):
        model.predict(X, criterion="luck")


@pytest.mark.parametrize("y", [[], np.zeros((30, 0))], ids=["none", "no columns"])
def test_empty_targets(y: Any) -> None:
    with pytest.raises(DataError):
        ContinualRegressor("sp-bbb", "mlp-4", settings=QUICK).learn_task(X, y)


def test_a_number_is_a_name_too() -> None:
    model = ContinualClassifier("sp-dirac", "mlp-4", settings=QUICK).learn_task(X, Y, name=2024)  # type: ignore[arg-type]
    assert model.task_names == ["2024"]
    assert model.predict(X, task=2024).shape == (30,)


def test_a_seed_among_the_settings_counts() -> None:
    assert ContinualClassifier(settings={"seed": 7}).config.seed == 7


@pytest.mark.parametrize(
    "settings", [{"training.iterations": 1, "training.learning_rate": 1e39}, {"training.learning_rate": 1e30}]
)
def test_a_diverged_task_is_an_error_and_forgotten(settings: dict[str, Any]) -> None:
    model = ContinualClassifier("sp-dirac", "mlp-4", settings={**QUICK, **settings})
    with pytest.raises(TrainingDiverged):
        model.learn_task(X, Y)
    assert model.task_names == []


@pytest.mark.parametrize("key", ["tasks", "heads", "config", "scenario", "input_shape", "problem", "generation"])
def test_facts_without_a_key_are_refused(key: str, tmp_path: Path) -> None:
    ContinualClassifier("sp-dirac", "mlp-4", settings=QUICK).learn_task(X, Y).save(tmp_path)
    model = read_model_file(tmp_path / "model.safetensors")
    del model.facts[key]
    (tmp_path / "model.safetensors").write_bytes(b"".join(pack(model.tensors).with_facts(model.facts)))
    for beside in (True, False):
        with pytest.raises(CheckpointError):
            ContinualClassifier.load(tmp_path)
        if beside:
            (tmp_path / "config.json").unlink()


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("threads", "remove it, and call torch.set_num_threads"),
        ("data_seed", "remove it"),
        ("data_dir", "remove it"),
        ("benchmark", "remove it"),
        ("data.missing", "pandas' fillna or dropna, or scikit-learn's SimpleImputer"),
        ("data.ignore", "pandas' drop(columns=...)"),
        ("data.test_share", "remove it, and prepare X and y yourself"),
    ],
)
def test_settings_of_runs_are_refused(key: str, instead: str) -> None:
    with pytest.raises(ConfigError, match="a setting of runs") as refused:
        ContinualClassifier(settings={key: 1})
    assert instead in str(refused.value)
    assert ("set_num_threads" in str(refused.value)) == (key == "threads")


def test_the_method_may_stand_among_the_settings() -> None:
    model = ContinualClassifier(settings={"method": "sp-dirac", "network": "mlp-5", "training.iterations": 2})
    assert (model.config.method, model.config.network) == ("sp-dirac", "mlp-5")
    x = np.random.default_rng(0).normal(size=(8, 3))
    model.learn_task(x, [0, 1] * 4)
    assert len(model.predict(x, task=np.int64(0))) == 8
    with pytest.raises(ConfigError, match="batch_wise"):
        model.predict(x, batch_wise=2.5)  # type: ignore[arg-type]


def test_saving_leaves_other_files_alone(tmp_path: Path) -> None:
    model = ContinualClassifier("sp-dirac", "mlp-5", settings={"training.iterations": 2})
    model.learn_task(np.random.default_rng(0).normal(size=(8, 3)), [0, 1] * 4)
    (tmp_path / "weights-best.safetensors").write_text("mine")
    model.save(tmp_path)
    model.learn_task(np.random.default_rng(1).normal(size=(8, 3)), [0, 1] * 4, name="second")
    model.save(tmp_path)
    assert (tmp_path / "weights-best.safetensors").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 4
