"""Adapters in PEFT's folder format: the package itself loads them, and computes what the model computes."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from metareplay import ContinualClassifier, permissions
from metareplay.errors import ConfigError
from metareplay.nets.weights import run_flat

QUICK = {"training.iterations": 3, "inference.samples": 2, "adapters.rank": 2}


def images(shape: tuple[int, ...] = (3, 16, 16)) -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(0).random((24, *shape), dtype=np.float32), np.arange(24) % 3


@pytest.fixture(scope="module")
def learned(image_encoder: Path) -> ContinualClassifier:
    model = ContinualClassifier("pr-bbb", f"adapters:{image_encoder}+mlp-4", seed=0, settings=QUICK)
    x, y = images()
    return model.learn_task(x, y, name="may").learn_task(1 - x, y, name="june")


def answer(folder: Path, features: Tensor) -> Tensor:
    """What the stored head makes of features, as docs/backbones.md says."""
    head = load_file(folder / "head.safetensors")
    h = (features - head["centre"]) / head["spread"]
    for index in range(sum(name.endswith("weight") for name in head)):
        h = h.relu() if index else h
        h = h @ head[f"layers.{index}.weight"].T + head[f"layers.{index}.bias"]
    return h


def outputs(model: ContinualClassifier, task: int, x: Tensor, weights: Tensor | None = None) -> Tensor:
    learner = model.learner
    assert learner is not None
    flat = learner.model.central_weights(task) if weights is None else weights
    with torch.no_grad():
        return run_flat(learner.model.network, learner.model.spec, flat.unsqueeze(0), x, learner.model.buffers(task))[0]


def with_peft(base: nn.Module, folder: Path) -> Any:
    peft = pytest.importorskip("peft")
    return peft.PeftModel.from_pretrained(base, folder).eval()


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers, as PEFT uses it
def test_the_package_computes_the_same_images(
    learned: ContinualClassifier, image_encoder: Path, tmp_path: Path
) -> None:
    import transformers

    learned.export_peft(tmp_path, "june")
    x = torch.from_numpy(images()[0][:5])
    base = transformers.AutoModel.from_pretrained(image_encoder)
    with torch.no_grad():
        plain = base(pixel_values=(x - 0.5) / 0.5).last_hidden_state[:, 0]
        features = with_peft(base, tmp_path)(pixel_values=(x - 0.5) / 0.5).last_hidden_state[:, 0]
    torch.testing.assert_close(answer(tmp_path, features), outputs(learned, 1, x), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(features, plain, atol=1e-4)


def test_the_layout_is_that_of_the_package(learned: ContinualClassifier, image_encoder: Path, tmp_path: Path) -> None:
    learned.export_peft(tmp_path / "new" / "folder", "may")
    folder = tmp_path / "new" / "folder"
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 2, 8.0)
    assert config["base_model_name_or_path"] == str(image_encoder)
    layers = [f"layers.{index}.attention.{name}" for index in (0, 1) for name in ("q_proj", "v_proj")]
    assert config["target_modules"] == layers
    stored = load_file(folder / "adapter_model.safetensors")
    assert {name: tuple(value.shape) for name, value in stored.items()} == {
        f"base_model.model.{layer}.lora_{part}.weight": shape
        for layer in layers
        for part, shape in (("A", (2, 8)), ("B", (8, 2)))
    }
    with safe_open(folder / "head.safetensors", "pt") as file:
        facts = json.loads(file.metadata()["metareplay"])
    assert facts["tasks"] == ["may"]
    assert facts["labels"] == [0, 1, 2]
    assert facts["backbone"]["size"] == 16


def test_weight_samples_are_folders(learned: ContinualClassifier, tmp_path: Path) -> None:
    learned.export_peft(tmp_path, "may", content="samples", samples=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sample-0", "sample-1", "sample-2"]
    first, second = (load_file(tmp_path / f"sample-{index}" / "adapter_model.safetensors") for index in (0, 1))
    assert any(not torch.equal(first[name], second[name]) for name in first)
    with pytest.raises(ConfigError, match="leave the number of samples out"):
        learned.export_peft(tmp_path, "may", samples=3)
    with pytest.raises(ConfigError, match="content='all' is unknown"):
        learned.export_peft(tmp_path, "may", content="all")


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_package_computes_the_same_texts(text_encoder: Path, tmp_path: Path) -> None:
    import transformers

    texts, labels = ["good film", "bad meal", "the film was fine", "awful"] * 3, ["yes", "no"] * 6
    model = ContinualClassifier("sp-dirac", f"adapters:{text_encoder}", seed=0, settings=QUICK)
    model.learn_task(texts, labels, name="may")
    model.export_peft(tmp_path, "may")
    read = transformers.AutoTokenizer.from_pretrained(text_encoder)(texts[:4], padding=True, return_tensors="pt")
    adapted = with_peft(transformers.AutoModel.from_pretrained(text_encoder), tmp_path)
    with torch.no_grad():
        hidden = adapted(input_ids=read["input_ids"], attention_mask=read["attention_mask"]).last_hidden_state
    mask = read["attention_mask"].unsqueeze(2)
    x = model._inputs(texts[:4])
    expected = outputs(model, 0, x)
    found = answer(tmp_path, (hidden * mask).sum(1) / mask.sum(1))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


class Own(nn.Module):
    """Has a layer that is never called, and whose name ends like that of another."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5))
        self.last, self.spare = nn.Linear(5, 4), nn.ModuleDict({"last": nn.Linear(4, 4)})

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.last(self.body(x).relu())
        return features


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(("layers", "targets"), [(["body.*"], ["body.0", "body.3"]), (["*"], "body\\.0|body\\.3|last")])
def test_the_package_computes_the_same_for_a_backbone_of_ones_own(
    layers: list[str], targets: list[str] | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "own_net", SimpleNamespace(own=Own))
    monkeypatch.setattr(permissions, "_permitted", set())
    settings = {**QUICK, "adapters.layers": layers}
    model = ContinualClassifier("sp-dirac", "adapters:own_net:own", seed=0, settings=settings)
    x, y = images((1, 4, 4))
    model.learn_task(x, y, name="may")
    model.export_peft(tmp_path, "may")
    assert json.loads((tmp_path / "adapter_config.json").read_text())["target_modules"] == targets
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        base = Own()
    with torch.no_grad():
        features = with_peft(base, tmp_path)(torch.from_numpy(x))
    torch.testing.assert_close(answer(tmp_path, features), outputs(model, 0, torch.from_numpy(x)), rtol=1e-5, atol=1e-5)


def test_what_has_no_adapters_is_refused(learned: ContinualClassifier, tmp_path: Path) -> None:
    plain = ContinualClassifier("pr-bbb", "mlp-5", settings={"training.iterations": 2})
    plain.learn_task(np.eye(6), [0, 1] * 3)
    with pytest.raises(ConfigError, match="'mlp-5' has no adapters"):
        plain.export_peft(tmp_path, 0)
    for export in (learned.export_state_dict, learned.export_onnx):
        with pytest.raises(ConfigError, match="export the adapters with --format peft"):
            export(tmp_path / "file", "may")
    assert not list(tmp_path.iterdir())
