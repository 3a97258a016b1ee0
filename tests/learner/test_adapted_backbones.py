"""A backbone with adapters in the learner: images stay images, the model lives, and other weights are refused."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

from metareplay import ContinualClassifier, ContinualRegressor, permissions
from metareplay.benchmarks.images import split_digits
from metareplay.errors import CheckpointError, ConfigError
from metareplay.experiments.run_benchmark import run_benchmark
from metareplay.nets.adapters import AdaptedFactory

NETWORK = "adapters:my_nets:net"
QUICK = {"training.iterations": 60, "training.learning_rate": 0.01, "inference.samples": 4, "adapters.rank": 2}


def net(factor: float = 1.0) -> nn.Module:
    module = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 8))
    module[2].weight.data *= factor  # type: ignore[operator, union-attr]
    return module


@pytest.fixture(autouse=True)
def backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "my_nets", SimpleNamespace(net=net))
    monkeypatch.setattr(permissions, "_permitted", {"my_nets:net"})


def images(task: int) -> tuple[np.ndarray, np.ndarray]:
    rng, y = np.random.default_rng(task), np.arange(40) % 2
    x = rng.uniform(0, 0.4, size=(40, 1, 8, 8))
    for row, label in enumerate(y):
        x[row, 0, 4 * label : 4 * label + 4, 4 * task : 4 * task + 4] += 0.5
    return (255 * x).astype(np.float32), y + 2 * task


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[ContinualClassifier, Path]:
    folder = tmp_path_factory.mktemp("model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "my_nets", SimpleNamespace(net=net))
        model = ContinualClassifier("pr-bbb", NETWORK, seed=0, settings=QUICK)
        for task in range(2):
            model.learn_task(*images(task), name=f"month {task}")
        model.save(folder)
    return model, folder


def test_a_model_is_saved_loaded_and_learns_on(stored: tuple[ContinualClassifier, Path]) -> None:
    model, folder = stored
    x, y = images(1)
    assert model.score(x, y, task=1) > 0.9
    again = ContinualClassifier.load(folder)
    assert again.learner is not None
    assert again.extractor is not None
    assert isinstance(again.learner.model.factory, AdaptedFactory)
    assert again.extractor.backbone is again.learner.model.factory.backbone  # held once
    assert again.input_shape == again.learner.input_shape == (1, 8, 8)
    assert float(again._inputs(x).max()) <= 1  # pixels up to 255 were recognised
    answer, expected = again.predict_full(x), model.predict_full(x)
    np.testing.assert_array_equal(answer.probabilities, expected.probabilities)
    np.testing.assert_array_equal(answer.known, expected.known)
    assert np.mean(answer.task == np.array(["month 1"] * len(x))) > 0.8  # tasks are told apart by what was stored
    again.learn_task(x[::-1].copy(), y[::-1] + 10, name="later")
    assert again.score(x[::-1], y[::-1] + 10, task="later") > 0.9
    assert again.score(*images(0), task=0) > 0.8


def test_the_file_holds_no_weight_of_the_backbone(stored: tuple[ContinualClassifier, Path]) -> None:
    model, _ = stored
    assert model.learner is not None
    tensors = model.learner.tensors(training=False)
    assert [name for name in tensors if "backbone" in name or "frozen" in name] == []
    assert "model.statistics.start.centre" in tensors


def test_a_backbone_with_other_weights_is_refused(
    stored: tuple[ContinualClassifier, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["my_nets"], "net", lambda: net(2.0))
    with pytest.raises(CheckpointError, match="the backbone my_nets:net has different weights"):
        ContinualClassifier.load(stored[1])


def test_a_file_that_names_a_backbone_does_not_run_it(
    stored: tuple[ContinualClassifier, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permissions, "_permitted", set())
    with pytest.raises(ConfigError, match=r"opening one never runs code; .* --trust-network my_nets:net"):
        ContinualClassifier.load(stored[1])
    permissions.permit(f"{NETWORK}+mlp-3")
    assert permissions.is_permitted("my_nets:net")


def test_a_run_learns_and_leaves_a_model(tmp_path: Path) -> None:
    tasks = split_digits()[:2]
    quick = {**QUICK, "report.references": False}
    results = run_benchmark(tasks, tmp_path / "a", network=NETWORK, settings=quick)
    assert results.tgiven_final > 70
    model, x = ContinualClassifier.load(tmp_path / "a"), tasks[0].test.x
    assert model.input_shape == tuple(x.shape[1:])
    again = run_benchmark(tasks, tmp_path / "b", network=NETWORK, settings=quick)
    assert again.tgiven_matrix == results.tgiven_matrix


def test_outputs_of_later_tasks_are_added() -> None:
    model = ContinualClassifier("ewc-multihead", NETWORK, seed=0, settings=QUICK)
    for task in range(2):
        model.learn_task(*images(task), name=str(task))
    assert model.score(*images(1), task=1) > 0.9
    assert model.learner is not None
    assert model.learner.model.outputs == 4


def test_an_ensemble_and_targets() -> None:
    x, y = images(0)
    settings = {**QUICK, "posterior.members": 2, "training.iterations": 30}
    ensemble = ContinualClassifier("pr-ensemble", NETWORK, seed=0, settings=settings).learn_task(x, y)
    assert ensemble.score(x, y) > 0.8
    targets = ContinualRegressor("sp-bbb", NETWORK, seed=0, settings={**QUICK, "training.iterations": 10})
    assert np.isfinite(targets.learn_task(x, y.astype(float)).predict(x)).all()


def test_a_description_of_a_layer_of_the_backbone_is_whole() -> None:
    settings = {**QUICK, "training.iterations": 3, "statistics.layers": ["backbone.module.4"]}
    model = ContinualClassifier("pr-bbb", NETWORK, seed=0, settings=settings).learn_task(*images(0))
    assert model.learner is not None
    network = model.learner.model.network
    network.at_once = 7  # type: ignore[assignment]
    model.learn_task(*images(1))
    assert len(model.predict(images(1)[0])) == 40


def test_threads_do_not_disturb_each_other(stored: tuple[ContinualClassifier, Path]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    model, x = stored[0], images(0)[0]
    expected = model.predict_full(x).probabilities
    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(lambda _: model.predict_full(x).probabilities, range(6)):
            np.testing.assert_array_equal(found, expected)
