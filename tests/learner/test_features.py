"""A backbone in front of the learner: features are computed once, and everything else is as for any inputs."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from metareplay import ContinualClassifier, permissions
from metareplay.benchmarks.base import Benchmark
from metareplay.benchmarks.images import CIFAR10_PREPARATION, split_digits, split_images
from metareplay.data.base import LabelledImages
from metareplay.errors import CheckpointError, ConfigError, DataError
from metareplay.experiments.plan import Plan, make_plan
from metareplay.experiments.run import Run
from metareplay.experiments.run_benchmark import run_benchmark
from metareplay.learner.config import build_config
from metareplay.learner.features import Extractor, with_features
from metareplay.nets import backbones
from metareplay.nets.backbone_parts import Loaded

NETWORK = "features:my_backbones:patches"
QUICK = {"training.iterations": 120, "training.learning_rate": 0.01, "inference.samples": 4}


class Patches(nn.Module):
    """Means of sixteen patches, and how many images it has seen."""

    seen = 0
    brightest = 0.0

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("factor", torch.tensor(factor))

    def forward(self, x: Tensor) -> Tensor:
        Patches.seen += len(x)
        Patches.brightest = max(Patches.brightest, float(x.max()))
        return self.factor * nn.functional.adaptive_avg_pool2d(x, 4).flatten(1)  # (N, 16 C)


@pytest.fixture(autouse=True)
def backbone(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setitem(sys.modules, "my_backbones", SimpleNamespace(patches=lambda: Patches()))
    monkeypatch.setenv("METAREPLAY_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(permissions, "_permitted", {"my_backbones:patches"})
    Patches.seen, Patches.brightest = 0, 0.0


def digits() -> Benchmark:
    return split_digits()[:2]


def test_a_run_learns_from_features_and_computes_them_once(tmp_path: Path) -> None:
    results = run_benchmark(digits(), tmp_path / "a", network=f"{NETWORK}+mlp-10", settings=QUICK)
    inputs = sum(len(task.train.x) + len(task.test.x) for task in digits())
    assert Patches.seen <= inputs + 4  # a few to find out how many features there are
    assert Patches.brightest <= 1
    assert results.tgiven_final > 90
    seen = Patches.seen
    again = run_benchmark(digits(), tmp_path / "b", network=f"{NETWORK}+mlp-10", settings=QUICK)
    assert Patches.seen <= seen + 4  # from the cache
    assert again.tgiven_matrix == results.tgiven_matrix


def test_a_damaged_cache_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAREPLAY_CACHE", str(tmp_path))
    config = build_config({"network": NETWORK}, {}, "test")
    first = with_features(digits(), config)[0].train.x
    (stored,) = {path.parent for path in tmp_path.rglob("*.safetensors")}
    for path in stored.iterdir():
        path.write_bytes(b"nothing")
    assert torch.equal(with_features(digits(), config)[0].train.x, first)
    monkeypatch.setenv("METAREPLAY_CACHE", "/proc/none")
    assert torch.equal(with_features(digits(), config)[0].train.x, first)


def test_the_backbone_sees_pixels_whatever_the_benchmark_made_of_them() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (40, 3, 8, 8), generator=generator, dtype=torch.uint8)
    images, y = LabelledImages(x, torch.arange(40) % 4, x[:8], torch.arange(8) % 4), torch.arange(40) % 4
    config = build_config({"network": NETWORK}, {}, "test")
    prepared = with_features(split_images("a", images, 2, prepare=CIFAR10_PREPARATION), config)
    plain = with_features(split_images("a", images, 2), config)
    assert prepared.input_shape == (48,)
    torch.testing.assert_close(prepared[0].train.x, plain[0].train.x, rtol=1e-3, atol=1e-4)
    assert len(prepared[0].train.x) == int((y < 2).sum())
    assert abs(float(plain[0].train.x.mean())) < 1e-4  # standardised by the first task
    assert float(plain[0].train.x.std()) == pytest.approx(1, abs=0.05)


def test_mirror_images_are_cached_as_inputs_of_their_own() -> None:
    plain, mirrored = ({"network": NETWORK, "features.mirror": mirror} for mirror in (False, True))
    alone = with_features(digits(), build_config(plain, {}, "test"))
    count = len(alone[0].train.x) + len(alone[0].test.x)
    seen = Patches.seen
    both = with_features(digits(), build_config(mirrored, {}, "test"))
    x = both[0].train.x
    assert Patches.seen <= seen + count + 4  # the images themselves are from the cache
    grid = (
        x * both.scaling.tensors["features.scaling.x_scale"] + both.scaling.tensors["features.scaling.x_mean"]
    ).view(-1, 4, 4)
    torch.testing.assert_close(grid, grid.flip(-1))  # left and right are alike now
    assert not torch.allclose(x, alone[0].train.x)


def test_mirror_images_need_images() -> None:
    table = np.random.default_rng(0).normal(size=(20, 5))
    model = ContinualClassifier("nmc", NETWORK, settings={"features.mirror": True})
    with pytest.raises(ConfigError, match=r"features.mirror=true needs images of shape \(C, H, W\), but inputs have"):
        model.learn_task(table, np.arange(20) % 2)


def test_features_are_raised_to_a_power_with_their_signs() -> None:
    whole, root = (
        with_features(digits(), build_config({"network": NETWORK, "features.power": power}, {}, "test"))
        for power in (1.0, 0.5)
    )

    def raw(benchmark: Benchmark) -> Tensor:
        scale, mean = (benchmark.scaling.tensors[f"features.scaling.{name}"] for name in ("x_scale", "x_mean"))
        return benchmark[0].train.x * scale + mean

    torch.testing.assert_close(raw(root).square(), raw(whole), atol=1e-4, rtol=1e-3)
    assert root.inputs["features"]["power"] == 0.5


def test_a_model_without_a_stored_power_keeps_its_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a backbone is known for may change between versions; models keep what they learned from."""
    facts = Extractor.facts
    monkeypatch.setattr(Extractor, "facts", lambda self: {k: v for k, v in facts(self).items() if k != "power"})
    model = ContinualClassifier("nmc", NETWORK).learn_task(*images(0))
    model.save(tmp_path)
    monkeypatch.setattr(backbones, "Loaded", lambda *parts: Loaded(*parts[:4])._replace(power=0.5))
    again, x = ContinualClassifier.load(tmp_path), images(0)[0]
    assert again.extractor is not None
    assert again.extractor.backbone.loaded.power == 0.5
    np.testing.assert_array_equal(again.predict_full(x).probabilities, model.predict_full(x).probabilities)


def images(task: int, scale: float = 255.0) -> tuple[np.ndarray, np.ndarray]:
    rng, y = np.random.default_rng(task), np.arange(40) % 2
    x = rng.uniform(0, 0.4, size=(40, 1, 8, 8))
    for row, label in enumerate(y):
        x[row, 0, 4 * label : 4 * label + 4, 4 * task : 4 * task + 4] += 0.5
    return (scale * x).astype(np.float32), y + 2 * task


@pytest.mark.parametrize("method", ["pr-bbb", "slda"])
def test_an_estimator_is_saved_loaded_and_learns_on(method: str, tmp_path: Path) -> None:
    quick = {} if method == "slda" else QUICK
    model = ContinualClassifier(method, NETWORK, settings=quick)
    for task in range(2):
        model.learn_task(*images(task))
    assert Patches.brightest <= 1  # pixels up to 255 were recognised
    assert model.input_shape == (1, 8, 8)
    x, y = images(1)
    assert model.score(x, y, task=1) > 0.9
    model.save(tmp_path)
    again = ContinualClassifier.load(tmp_path)
    np.testing.assert_array_equal(again.predict_full(x).probabilities, model.predict_full(x).probabilities)
    with pytest.raises(DataError, match="shape"):
        again.predict(x[:, :, :4])
    for either in (model, again):
        either.learn_task(x[::-1].copy(), y[::-1] + 10)
    np.testing.assert_array_equal(again.predict_full(x).probabilities, model.predict_full(x).probabilities)


def test_a_backbone_with_other_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ContinualClassifier("nmc", NETWORK)
    model.learn_task(*images(0)).save(tmp_path)
    monkeypatch.setattr(sys.modules["my_backbones"], "patches", lambda: Patches(2.0))
    with pytest.raises(CheckpointError, match="the backbone my_backbones:patches has different weights"):
        ContinualClassifier.load(tmp_path)


def test_a_file_that_names_a_backbone_does_not_run_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ContinualClassifier("nmc", NETWORK).learn_task(*images(0)).save(tmp_path)
    monkeypatch.setattr(permissions, "_permitted", set())
    with pytest.raises(ConfigError, match=r"opening one never runs code; .* --trust-network my_backbones:patches"):
        ContinualClassifier.load(tmp_path)
    permissions.permit("my_backbones:patches")
    assert ContinualClassifier.load(tmp_path).input_shape == (1, 8, 8)


def test_a_first_task_that_fails_leaves_nothing_behind() -> None:
    model = ContinualClassifier("nmc", NETWORK)
    x, y = images(0)
    with pytest.raises(DataError):
        model.learn_task(np.full_like(x, np.nan), y)
    assert model.learner is None
    model.learn_task(x[:, :, :6, :6], y)  # another shape is as good as any
    assert model.input_shape == (1, 6, 6)


def test_a_run_and_the_model_it_leaves_agree(tmp_path: Path) -> None:
    """A folder of pictures: what predict sees is what the run learned from."""
    image = pytest.importorskip("PIL.Image")
    for task in range(2):
        x, y = images(task)
        for row, (picture, label) in enumerate(zip(x[:, 0], y, strict=True)):
            folder = tmp_path / "photos" / f"kind-{label}"
            folder.mkdir(parents=True, exist_ok=True)
            image.fromarray(picture.round().astype(np.uint8)).save(folder / f"{row:02d}.png")
    settings = {"data.path": str(tmp_path / "photos"), "data.tasks_by": "classes:2", "method": "slda"}
    plan = make_plan({**settings, "network": NETWORK}, out=tmp_path / "run")
    results = Run(plan).execute()
    assert results.tgiven_final > 90
    model, test = ContinualClassifier.load(tmp_path / "run"), plan.benchmark[0].test
    assert model.input_shape == (1, 8, 8)
    raw = Plan.of(build_config({}, {key: settings[key] for key in settings if "data" in key}, "test"), tmp_path)
    given = model.learner
    assert given is not None
    x = model.scaling.tensors["x_scale"] * raw.benchmark[0].test.x + model.scaling.tensors["x_mean"]
    expected = given.predictor.predict(test.x).probabilities
    np.testing.assert_allclose(model.predict_full(x).probabilities, expected, atol=1e-4)
