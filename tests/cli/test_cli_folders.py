"""What `run` may remove, where it resumes, and that two processes never write one run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metareplay.errors import ConfigError
from metareplay.locks import LOCK, only_writer

Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_report")


def test_overwrite_leaves_a_folder_with_anything_else_alone(command: Command, tiny: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert command("run", "modes-2d", *tiny, "--out", out).code == 0
    (out / "notes.txt").write_text("precious")
    result = command("run", "modes-2d", *tiny, "--out", out, "--overwrite")
    assert result.code == 2
    assert "notes.txt" in result.err
    assert (out / "results.json").is_file()
    (out / "notes.txt").unlink()
    assert command("run", "modes-2d", *tiny, "--out", out, "--overwrite").code == 0


@pytest.mark.parametrize("entry", ["config.yaml", "seed-data/precious"])
def test_overwrite_does_not_take_any_folder_for_a_run(
    command: Command, tiny: list[str], tmp_path: Path, entry: str
) -> None:
    (tmp_path / entry).parent.mkdir(exist_ok=True)
    (tmp_path / entry).write_text("name: my own project\n")
    result = command("run", "modes-2d", *tiny, "--out", tmp_path, "--overwrite")
    assert result.code == 2
    assert (tmp_path / entry).is_file()


@pytest.mark.usefixtures("seeds_here")
def test_resume_finds_the_seeds_of_the_default_folder(
    command: Command, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [*tiny, "--method", "sp-dirac", "--network", "mlp-4"]
    assert command("run", "modes-2d", *settings, "--seeds", 2).code == 0
    folder = tmp_path / "runs" / "modes-2d-sp-dirac-mlp-4"
    again = command("run", "modes-2d", "--method", "sp-dirac", "--network", "mlp-4", "--resume", "--quiet")
    assert again.code == 0
    assert "2 seeds" in again.out
    assert not (folder / "results.json").exists()
    refused = command("run", "modes-2d", *settings)
    assert refused.code == 2
    assert "several seeds" in refused.err
    (folder / "seeds.json").write_text("{broken")
    assert command("run", "modes-2d", *settings, "--resume").code == 2


def test_only_one_process_writes_to_a_folder(tmp_path: Path) -> None:
    with (
        only_writer(tmp_path),
        pytest.raises(ConfigError, match="another process is writing to"),
        only_writer(tmp_path),
    ):
        pass
    assert not (tmp_path / LOCK).exists()
    with only_writer(tmp_path):
        pass


@pytest.mark.parametrize(
    ("benchmark", "setting", "reason"),
    [
        ("modes-2d", "posterior.likelihood_scale=0.5", "no Gaussian likelihood"),
        ("regression-1d", "heads=multi", "share their outputs"),
        ("split-digits", "data_seed=3", "not generated"),
        ("split-digits", "tasks.padding=2", "its pixels are not permuted"),
        ("split-digits", "tasks.classes_per_task=3", "10 classes cannot be split into tasks of 3"),
        ("split-digits", "tasks.classes_per_task=1", "must be an integer of at least 2 or null"),
        ("split-digits", "tasks.class_order=[1, 2]", "class_order must list each of the classes"),
        ("modes-2d", "training.augmentation=crop-flip", "needs images of shape (C, H, W)"),
    ],
)
def test_what_means_nothing_for_a_benchmark_is_refused(
    command: Command, tmp_path: Path, benchmark: str, setting: str, reason: str
) -> None:
    result = command("run", benchmark, "--set", setting, "--out", tmp_path / "run")
    assert result.code == 2
    assert reason in result.err


def test_an_unknown_network_is_named(command: Command, tmp_path: Path) -> None:
    result = command("run", "--network", "lennet", "--out", tmp_path / "run")
    assert result.code == 2
    assert "network='lennet' is unknown; did you mean lenet?" in result.err
    result = command("run", "--network", "lenet", "--out", tmp_path / "run")  # images of 8 x 8 pixels
    assert result.code == 2
    assert "lenet needs images of at least 16 x 16 pixels" in result.err


def test_a_byte_order_mark_is_no_header(command: Command, tiny: list[str], tmp_path: Path) -> None:
    assert command("run", "modes-2d", *tiny, "--out", tmp_path / "run").code == 0
    (tmp_path / "x.csv").write_bytes(b"\xef\xbb\xbf1,2\n3,4\n")
    result = command("predict", tmp_path / "run", tmp_path / "x.csv")
    assert result.code == 0
    assert len(result.out.splitlines()) == 1 + 2
    assert np.isfinite(float(result.out.splitlines()[1].split(",")[2]))


@pytest.mark.parametrize("options", [["--overwrite"], ["--seeds", "2"], ["--resume"]], ids=" ".join)
def test_a_file_in_the_place_of_the_folder(
    options: list[str], command: Command, tiny: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("precious")
    result = command("run", "modes-2d", *tiny, "--out", tmp_path / "file", *options)
    assert result.code == 2
    assert (tmp_path / "file").read_text() == "precious"


def test_overwrite_keeps_the_old_run_when_the_new_one_cannot_begin(
    command: Command, tiny: list[str], tmp_path: Path
) -> None:
    options = ["run", "modes-2d", "--method", "sp-dirac", *tiny, "--out", tmp_path / "run"]
    command(*options)
    result = command(*options, "--network", "mlp-0", "--overwrite")
    assert result.code == 2
    assert (tmp_path / "run" / "results.json").is_file()


@pytest.mark.usefixtures("seeds_here")
@pytest.mark.parametrize("where", ["run", "run/seed-0"])
def test_overwrite_leaves_a_run_at_work_alone(where: str, command: Command, tiny: list[str], tmp_path: Path) -> None:
    seeds = ["--seeds", 1] if where.endswith("seed-0") else []
    options = ["run", "modes-2d", "--method", "sp-dirac", *tiny, "--out", tmp_path / "run", *seeds]
    assert command(*options).code == 0
    before = {path for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with only_writer(tmp_path / where):
        result = command(*options, "--overwrite")
    assert result.code == 2
    assert "another process is writing to" in result.err
    assert {path for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    assert command(*options, "--overwrite").code == 0
    assert not list(tmp_path.rglob(LOCK))


def test_a_planted_lock_does_not_empty_its_target(command: Command, tiny: list[str], tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "precious.txt")
    result = command("run", "modes-2d", "--method", "sp-dirac", *tiny, "--out", tmp_path / "run")
    assert result.code == 2
    assert "is not a lock but a link" in result.err
    assert (tmp_path / "precious.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("method: pr-bbb\nmethod: vcl\n", "line 2, column 1: the key 'method' is given twice"),
        ("training:\n  iterations: 5\n  iterations: 6\n", "line 3, column 3: the key 'iterations' is given twice"),
        ("seed: {}\n", "seed is empty ({}); give it a value, or remove it"),
        ("training: {iterations: {}}\n", "training.iterations is empty ({}); give it a value, or remove it"),
        ("1: 2\n", "the key 1 is not text"),
    ],
)
def test_a_configuration_whose_settings_would_be_lost(text: str, words: str, command: Command, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    result = command("run", "modes-2d", "--config", tmp_path / "c.yaml", "--out", tmp_path / "run")
    assert result.code == 2
    assert words in result.err


def test_a_setting_that_is_a_mapping(command: Command, tmp_path: Path) -> None:
    result = command("run", "modes-2d", "--set", "training.iterations={}", "--out", tmp_path / "run")
    assert (result.code, "a setting has a value, not a mapping" in result.err) == (2, True)
