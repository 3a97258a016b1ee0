"""More of what users do wrong: broken archives, files in the place of folders, binary settings."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metareplay import ContinualClassifier

Command = Callable[..., Any]


def archive() -> bytes:
    content = io.BytesIO()
    np.savez(content, x=np.eye(2))
    return content.getvalue()


def array() -> bytes:
    content = io.BytesIO()
    np.save(content, np.eye(2))
    return content.getvalue()


BROKEN: list[tuple[str, bytes]] = [
    ("x.npy", b""),
    ("x.npz", b""),
    ("x.npz", archive()[:-30]),
    ("x.npy", array()[:-5]),
    ("x.npz", array()),  # an array with the ending of an archive
    ("x.npy", archive()),
]


@pytest.mark.parametrize(("name", "content"), BROKEN)
def test_broken_inputs(name: str, content: bytes, command: Command, tmp_path: Path) -> None:
    model = ContinualClassifier("sp-dirac", "mlp-3", settings={"training.iterations": 2}).learn_task(np.eye(2), ["a", "b"])
    model.save(tmp_path / "model")
    (tmp_path / name).write_bytes(content)
    found = command("predict", tmp_path / "model", tmp_path / name)
    assert found.code == 2
    assert name in found.err


@pytest.mark.parametrize("options", [["--overwrite"], ["--seeds", "2"], ["--resume"]], ids=" ".join)
def test_a_file_in_the_place_of_the_folder(options: list[str], command: Command, tiny: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    found = command("run", "modes-2d", *tiny, "--out", tmp_path / "file", *options)
    assert found.code == 2
    assert (tmp_path / "file").read_text() == "precious"


def test_a_binary_configuration_file(command: Command, tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xf0\x28\x8c\x28")
    found = command("run", "--config", tmp_path / "binary.yaml")
    assert found.code == 2
    assert "binary.yaml" in found.err


def test_overwrite_keeps_the_old_run_when_the_new_one_cannot_begin(command: Command, tiny: list[str], tmp_path: Path) -> None:
    options = ["run", "modes-2d", "--method", "sp-dirac", *tiny, "--out", tmp_path / "run"]
    command(*options)
    found = command(*options, "--network", "mlp-0", "--overwrite")
    assert found.code == 2
    assert (tmp_path / "run" / "results.json").is_file()


def test_damaged_results_are_one_message(command: Command, tiny: list[str], tmp_path: Path) -> None:
    command("run", "modes-2d", "--method", "sp-dirac", *tiny, "--out", tmp_path / "run")
    (tmp_path / "run" / "results.json").write_text('{"schema": 1, "bench')
    assert command("run", "--out", tmp_path / "run", "--resume").code == 2


def test_an_unknown_criterion_is_refused_by_every_model(command: Command, tmp_path: Path) -> None:
    model = ContinualClassifier("joint", "mlp-3", settings={"training.iterations": 2}).learn_task(np.eye(2), ["a", "b"])
    model.save(tmp_path / "model")
    np.save(tmp_path / "x.npy", np.eye(2))
    assert command("predict", tmp_path / "model", tmp_path / "x.npy", "--criterion", "luck").code == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_files_beside_a_run(command: Command, tiny: list[str], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    found = command("run", "modes-2d", "--method", "sp-dirac", *tiny, "--tensorboard", "--out", tmp_path / "run")
    assert found.code == 0
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*"))


def test_a_method_like_no_other_is_a_proper_sentence(command: Command) -> None:
    found = command("run", "--method", "zzz")
    assert "method='zzz' is unknown; choose one of " in found.err.lower() or "is unknown. Choose one of " in found.err
