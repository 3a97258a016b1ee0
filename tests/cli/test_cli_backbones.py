"""A stored model that sees photos through a backbone of the user's own: every verb, and what is refused."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metareplay import permissions

Command = Callable[..., Any]
TRUST = ("--trust-network", "my_patches:patches")
QUICK = ("--set", "training.iterations=30", "--set", "inference.samples=3")


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of photos, and the module with the backbone."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for month, classes in {"may": ("cat", "dog"), "june": ("owl", "hen"), "late": ("cow",)}.items():
        for place, name in enumerate(classes):
            for number in range(8):
                pixels = rng.integers(0, 60, (8, 8, 3), dtype=np.uint8)
                pixels[4 * place : 4 * place + 4, :, len(classes) % 3] += 150
                file = tmp_path / month / name / f"{number}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(file)
    code = "from torch import nn\ndef patches():\n    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())\n"
    (tmp_path / "my_patches.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(permissions, "_permitted", set())
    monkeypatch.setenv("METAREPLAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "my_patches", raising=False)
    return tmp_path


def test_a_model_with_a_backbone_lives(photos: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = photos / "shop"
    assert command("new", shop, "--network", "features:my_patches:patches+mlp-6", *QUICK).code == 0
    for month in ("may", "june"):
        done = command("add-task", shop, photos / month, "--name", month, "-q", *TRUST)
        assert done.code == 0, done.err
    monkeypatch.setattr(permissions, "_permitted", set())  # as in a new process
    refused = command("tasks", shop)
    assert refused.code != 0
    assert "--trust-network" in refused.err
    assert [row["name"] for row in json.loads(command("tasks", shop, "--json", *TRUST).out)] == ["may", "june"]
    assert len(json.loads(command("audit", shop, "--json", *TRUST).out)["tasks"]) == 2
    answers = command("predict", shop, photos / "june", "--out", photos / "answers.csv", *TRUST)
    assert answers.code == 0, answers.err
    assert (photos / "answers.csv").read_text().count("\n") == 17
    updated = command("update-task", shop, photos / "late", "--name", "may", "-q", *TRUST)
    assert updated.code == 0, updated.err
    assert json.loads(command("tasks", shop, "--json", *TRUST).out)[0]["classes"] == ["cat", "dog", "cow"]
    for form in ("onnx", "state-dict"):
        refused = command("export", shop, "--task", "may", "--format", form, "--out", photos / "may", *TRUST)
        assert refused.code != 0
        assert "cannot be exported" in refused.err
    assert command("undo", shop, *TRUST).code == 0
    assert command("rename-task", shop, "june", "summer", *TRUST).code == 0
    assert command("remove-task", shop, "may", *TRUST).code == 0
    assert [row["name"] for row in json.loads(command("tasks", shop, "--json", *TRUST).out)] == ["summer"]
    assert command("compact", shop, *TRUST).code == 0


def test_a_model_with_adapters_lives_and_is_exported(
    photos: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = photos / "shop"
    code = "nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 5))"
    (photos / "my_patches.py").write_text(f"from torch import nn\ndef patches():\n    return {code}\n")
    assert command("new", shop, "--network", "adapters:my_patches:patches", *QUICK).code == 0
    for month in ("may", "june"):
        done = command("add-task", shop, photos / month, "--name", month, "-q", *TRUST)
        assert done.code == 0, done.err
    monkeypatch.setattr(permissions, "_permitted", set())  # as in a new process
    refused = command("tasks", shop)
    assert refused.code != 0
    assert "--trust-network" in refused.err
    assert len(json.loads(command("audit", shop, "--json", *TRUST).out)["tasks"]) == 2
    assert command("predict", shop, photos / "june", "--out", photos / "answers.csv", *TRUST).code == 0
    assert (photos / "answers.csv").read_text().count("\n") == 17
    updated = command("update-task", shop, photos / "late", "--name", "may", "-q", *TRUST)
    assert updated.code == 0, updated.err
    assert command("undo", shop, *TRUST).code == 0
    export = ("export", shop, "--format", "peft", "--out", photos / "adapter", *TRUST)
    exported = command(*export, "--task", "june")
    assert exported.code == 0, exported.err
    files = {"adapter_config.json", "adapter_model.safetensors", "head.safetensors"}
    assert {path.name for path in (photos / "adapter").iterdir()} == files
    assert "adapters belong to one task; add --task: may, june" in command(*export).err
    assert "remove --criterion" in command(*export, "--task", "may", "--criterion", "ent").err
    assert "--format peft" in command("export", shop, "--out", photos / "all.onnx", *TRUST).err
