"""Opening a model, a run or a configuration never runs code that only a file names."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from metareplay import ContinualClassifier, permissions
from metareplay.cli.main import main
from metareplay.errors import ConfigError
from metareplay.experiments.plan import make_plan
from metareplay.learner.model_file import pack, read_model_file
from metareplay.living.place import NewModel, begin_new
from metareplay.nets.own import stored_folder

QUICK = {"training.iterations": 2, "inference.samples": 2}
X = np.random.default_rng(0).normal(size=(12, 3))
CODE = """
from pathlib import Path
from torch import nn

Path(__file__).with_name("ran").touch()


def build(outputs):
    return nn.Linear(3, outputs)
"""


@pytest.fixture(autouse=True)
def nothing_permitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(permissions, "_permitted", set())
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("shared", "my_net"):
            del sys.modules[name]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A model from elsewhere, which brings code and names it as its network."""
    folder = tmp_path / "shared"
    ContinualClassifier("sp-dirac", "mlp-3", settings=QUICK).learn_task(X, X[:, 0] > 0).save(folder)
    (folder / "notes.py").write_text(CODE)
    path = folder / "model.safetensors"
    facts, tensors = read_model_file(path)
    facts["config"]["network"] = "shared.notes:build"
    del facts["config"]["activation"]
    path.write_bytes(b"".join(pack(tensors).with_facts(facts)))
    (folder / "config.json").write_text(json.dumps(facts))
    np.save(tmp_path / "x.npy", X)
    return folder


def called(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    monkeypatch.setattr(sys, "argv", ["metareplay", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_opening_a_model_does_not_import_what_it_names(shared: Path) -> None:
    with pytest.raises(ConfigError, match=r"opening one never runs code.*--trust-network shared\.notes:build"):
        ContinualClassifier.load(shared)
    assert not (shared / "ran").exists()
    assert "shared.notes" not in sys.modules


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("command", [["tasks", "shared"], ["predict", "shared", "x.npy"]], ids=" ".join)
def test_nor_does_any_command_even_with_permission_if_the_model_brings_the_code(
    command: list[str], trusted: bool, shared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trust = ["--trust-network", "shared.notes:build"] if trusted else []
    assert called(monkeypatch, *command, *trust) == 2
    words = "is imported" if trusted else "--trust-network shared.notes:build"
    assert words in capsys.readouterr().err.replace("\n", " ")
    assert not (shared / "ran").exists()


def test_nor_from_inside_the_models_folder(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shared)
    permissions.permit("notes:build")
    with pytest.raises(ConfigError, match="from which no code is imported"):
        ContinualClassifier("sp-dirac", "notes:build", settings=QUICK)
    assert str(shared) not in sys.path
    assert not (shared / "ran").exists()


BACKBONE = "features:my_net:build+mlp-3"


def test_nor_does_a_model_whose_backbone_is_code(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_net.py").write_text(CODE)
    facts, tensors = read_model_file(shared / "model.safetensors")
    facts["config"] |= {"network": BACKBONE, "activation": "relu"}
    (shared / "model.safetensors").write_bytes(b"".join(pack(tensors).with_facts(facts)))
    (shared / "config.json").unlink()
    assert called(monkeypatch, "predict", "shared", "x.npy") == 2
    assert "--trust-network my_net:build" in capsys.readouterr().err.replace("\n", " ")
    assert called(monkeypatch, "predict", "shared", "x.npy", "--trust-network", "my_net:build") == 2
    assert "does not fit features:my_net:build" in capsys.readouterr().err.replace("\n", " ")  # it stores no features
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("key", ["network", "settings"])
@pytest.mark.parametrize("network", ["my_net:build", BACKBONE, "adapters:my_net:build"])
def test_nor_does_a_stream_into_a_new_model(
    network: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_net.py").write_text(CODE)
    given: dict[str, Any] = {"network": None, "settings": {}} | (
        {key: network} if key == "network" else {key: {"network": network}}
    )
    begin_new(tmp_path / "new", NewModel("sp-dirac", **given))
    rows = "".join(f"{i},{i % 3},{'ab'[i % 2]}\n" for i in range(300))
    (tmp_path / "rows.csv").write_text(f"p,q,y\n{rows}")
    assert called(monkeypatch, "stream", "new", "rows.csv", "--label", "y") == 2
    assert "--trust-network my_net:build" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A model with a network of the user's own, as another process left it."""
    (tmp_path / "my_net.py").write_text(CODE)
    ContinualClassifier("sp-dirac", "my_net:build", settings=QUICK).learn_task(X, X[:, 0] > 0).save(tmp_path / "model")
    del sys.modules["my_net"]
    permissions._permitted.clear()
    return tmp_path / "model"


def test_a_network_of_ones_own_is_named_again(own: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(ConfigError, match="never runs code"):
        ContinualClassifier.load(own)
    assert called(monkeypatch, "predict", own, "x.npy", "--trust-network", "my_net:other") == 2
    assert called(monkeypatch, "predict", own, "x.npy", "--trust-network", "my_net:build") == 0
    permissions._permitted.clear()
    build: Callable[..., object] = vars(sys.modules["my_net"])["build"]
    assert ContinualClassifier.load(own, network=build).task_names == ["task-0"]  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["config", "resume"])
def test_a_configuration_does_not_decide_which_code_is_run(how: str, tmp_path: Path) -> None:
    (tmp_path / "my_net.py").write_text(CODE)
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "config.yaml"
    path.write_text(yaml.safe_dump({"benchmark": "modes-2d", "method": "sp-dirac", "network": "my_net:build"}))
    options = {"file": path} if how == "config" else {"resume": True}
    with pytest.raises(ConfigError, match="never runs code"):
        make_plan({}, out=tmp_path / "run", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "ran").exists()
    plan = make_plan({"network": "my_net:build"}, out=tmp_path / "run", **options)  # type: ignore[arg-type]
    assert plan.config.network == "my_net:build"


def test_which_folders_are_of_models_and_runs(tmp_path: Path) -> None:
    for name, content in (("a/model.safetensors", ""), ("b/model.json", '{"format": "metareplay-model-1"}')):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(content)
        assert stored_folder((tmp_path / name).parent / "code" / "x.py") == (tmp_path / name).parent
    (tmp_path / "model.json").write_text("{}")
    (tmp_path / "config.yaml").write_text("")
    assert stored_folder(tmp_path / "x.py") is None
    (tmp_path / "metrics.jsonl").write_text("")
    assert stored_folder(tmp_path / "x.py") == tmp_path
