"""A user's error ends with code 2 and one clear message, never with a traceback."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metareplay import ContinualClassifier

Command = Callable[..., Any]

USER_ERRORS: list[tuple[list[str], str]] = [
    (["run", "split-digit"], "benchmark 'split-digit' is unknown"),
    (["run", "split-digit"], "did you mean 'split-digits'?"),
    (["run", "--method", "pr-bb"], "did you mean pr-bbb?"),
    (
        ["run", "modes-2d", "--network", "mlp-0", "--out", "OUT"],
        "network='mlp-0' is unknown; did you mean mlp? choose one of mlp-",
    ),
    (["run", "--set", "training.iteration=5"], "did you mean training.iterations?"),
    (["run", "--set", "training.iterations"], "write key=value"),
    (["run", "--set", "training.iterations=0"], "error: --set: training.iterations=0: must be a positive integer"),
    (
        ["run", "--set", "training.learning_rate=fast"],
        "--set: training.learning_rate='fast': must be a positive number",
    ),
    (["run", "--set", "hypernet.hidden=[1"], "'hypernet.hidden=[1': the value is not valid YAML: at the end: "),
    (["run", "--set", "training.iterations=5", "--set", "training.epochs=2"], "give either iterations or epochs"),
    (["run", "--method", "sp-bbb", "--set", "strategy.strength=1"], "sp-bbb uses no measures against forgetting"),
    (["run", "--method", "pr-dirac", "--set", "posterior.prior_scale=1"], "pr-dirac has point estimates"),
    (["run", "--seed", "-1"], "error: seed=-1: must be a non-negative integer"),
    (["run", "--config", "OUT/none.yaml"], "cannot be read: No such file or directory"),
    (["run", "--config", "OUT"], "cannot be read: Is a directory"),
    (["run", "split-mnist", "--data-dir", "OUT/none", "--out", "OUT/run"], "is not a folder"),
    (["run", "split-mnist", "--data-dir", "OUT", "--out", "OUT/run"], "OUT"),
    (["list", "flowers"], "list 'flowers' is unknown; choose one of benchmarks, methods"),
    (["report", "OUT"], "OUT"),
    (["report", "OUT/none"], "there is no folder"),
    (["tasks", "OUT"], "does not contain a model: model.safetensors is missing"),
    (["predict", "OUT", "OUT/x.npy"], "does not contain a model"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), USER_ERRORS, ids=[" ".join(arguments) for arguments, _ in USER_ERRORS]
)
def test_a_users_error_is_one_clear_message(
    arguments: list[str], message: str, command: Command, tmp_path: Path
) -> None:
    result = command(*(argument.replace("OUT", str(tmp_path)) for argument in arguments))
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert message.replace("OUT", str(tmp_path)) in result.err
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.out + result.err
    assert list(tmp_path.iterdir()) == []  # nothing was begun


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed: 1\ntraining: [1, 2", " is not valid YAML: at the end: did not find expected ',' or ']'"),
        ("a: b: c", " is not valid YAML: line 1, column 5: mapping values are not allowed in this context"),
        ("- a list", " must hold settings like"),
        ("just words", " must hold settings like"),
        ("training:\n  iterations: -3", ": training.iterations=-3: must be a positive integer or null"),
        ("nonsense: 1", ": unknown setting 'nonsense'"),
    ],
)
def test_a_bad_configuration_file(text: str, words: str, command: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    result = command("run", "--config", tmp_path / "bad.yaml", "--out", tmp_path / "run", "--set", "threads=1")
    assert result.code == 2
    assert f"bad.yaml{words}" in result.err
    assert "Traceback" not in result.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["run", "--bogus"],
        ["run", "--seeds", "0"],
        ["run", "--seeds", "two"],
        ["run", "--jobs", "0"],
        ["predict"],
        ["list"],
    ],
    ids=" ".join,
)
def test_wrong_usage(arguments: list[str], command: Command) -> None:
    result = command(*arguments)
    assert result.code == 2
    assert "Usage:" in result.out + result.err
    assert "Traceback" not in result.out + result.err


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stored model of inputs with two features."""
    folder = tmp_path_factory.mktemp("model")
    learner = ContinualClassifier("sp-dirac", "mlp-3", settings={"training.iterations": 2})
    learner.learn_task(np.eye(2), ["a", "b"], name="spring").save(folder)
    return folder


BAD_INPUTS: list[tuple[str, bytes, str]] = [
    ("x.txt", b"1,2\n", "unknown extension"),
    ("x.npy", b"this is no array", "cannot be read as numbers"),
    ("x.npz", b"this is no archive", "cannot be read as numbers"),
    ("x.csv", b"1,2\n3\n", "cannot be read as numbers"),
    ("x.csv", b"a,b\n1,two\n", "the cell 'two' in row 1 is not a number"),
    ("x.csv", b",2\n1,2\n", "the cell '' in row 1 is not a number"),
    ("x.csv", b"\xff\xfe\x00", "cannot be read as numbers"),
    ("x.csv", b"", "inputs have shape (0,)"),
    ("x.csv", b"1,2,3\n", "this model was trained on inputs of shape (2,)"),
    ("x.csv", b"1,nan\n", "NaN or infinite"),
]


@pytest.mark.parametrize(
    ("name", "content", "message"), BAD_INPUTS, ids=[f"{name} {message}" for name, _, message in BAD_INPUTS]
)
def test_bad_inputs(name: str, content: bytes, message: str, command: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    result = command("predict", model, tmp_path / name)
    assert result.code == 2
    assert message in result.err
    assert (result.out, result.err.count("\n")) == ("", 1)


def test_an_archive_without_x(command: Command, model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", inputs=np.eye(2))
    result = command("predict", model, tmp_path / "x.npz")
    assert (result.code, "holds no array named x" in result.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task", "winter"], "task 'winter' is unknown; the model has learned 'spring'"),
        (["--criterion", "luck"], "criterion='luck' is unknown. Choose one of ent, conf, agree, ku"),
        (["--criterion", "agree"], "compares weight samples, but a point estimate has only one; choose ent, conf"),
        (["--out", "MODEL/config.json/answers.csv"], "cannot write"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_bad_options_of_predict(
    options: list[str], message: str, command: Command, model: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.eye(2))
    result = command("predict", model, tmp_path / "x.npy", *(option.replace("MODEL", str(model)) for option in options))
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("arguments", [("tasks", "MODELS"), ("predict", "MODELS", "x.npy")])
def test_a_folder_of_several_seeds_names_the_first(
    arguments: tuple[str, ...], command: Command, model: Path, tmp_path: Path
) -> None:
    for seed in (9, 10):
        shutil.copytree(model, tmp_path / f"seed-{seed}" / "model")
    result = command(*(argument.replace("MODELS", str(tmp_path)) for argument in arguments))
    assert result.code == 2
    assert f"it holds runs of several seeds, so pass the folder of one, e.g. {tmp_path / 'seed-9'}\n" in result.err
    assert command("tasks", tmp_path / "seed-9").code == 0


def test_missing_inputs(command: Command, model: Path, tmp_path: Path) -> None:
    result = command("predict", model, tmp_path / "none.npy")
    assert (result.code, result.err) == (2, f"error: {tmp_path / 'none.npy'} does not exist\n")


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
def test_broken_inputs(name: str, content: bytes, model: Path, command: Command, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    result = command("predict", model, tmp_path / name)
    assert result.code == 2
    assert name in result.err


def test_a_binary_configuration_file(command: Command, tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xf0\x28\x8c\x28")
    result = command("run", "--config", tmp_path / "binary.yaml")
    assert result.code == 2
    assert "binary.yaml" in result.err


@pytest.mark.usefixtures("no_report")
def test_damaged_results_are_one_message(command: Command, tiny: list[str], tmp_path: Path) -> None:
    command("run", "modes-2d", "--method", "sp-dirac", *tiny, "--out", tmp_path / "run")
    (tmp_path / "run" / "results.json").write_text('{"schema": 1, "bench')
    assert command("run", "--out", tmp_path / "run", "--resume").code == 2


def test_an_unknown_criterion_is_refused_by_every_model(command: Command, tmp_path: Path) -> None:
    model = ContinualClassifier("joint", "mlp-3", settings={"training.iterations": 2}).learn_task(np.eye(2), ["a", "b"])
    model.save(tmp_path / "model")
    np.save(tmp_path / "x.npy", np.eye(2))
    assert command("predict", tmp_path / "model", tmp_path / "x.npy", "--criterion", "luck").code == 2


def test_a_method_like_no_other_is_a_proper_sentence(command: Command) -> None:
    result = command("run", "--method", "zzz")
    assert "method='zzz' is unknown; choose one of " in result.err.lower() or "is unknown. Choose one of " in result.err


LONG = "a" * 5000
ODD_PATHS: list[tuple[list[str], str]] = [
    (["run", "--data", LONG], "File name too long"),
    (["run", "--config", LONG], "File name too long"),
    (["run", "--set", 'data.path="a\\0b"'], "does not exist"),
    (["run", "modes-2d", "--out", "OUT/file/x"], "Not a directory"),
    (["predict", LONG, LONG], "File name too long"),
    (["report", LONG], "File name too long"),
    (["tasks", LONG], "File name too long"),
    (["reproduce", "gmm", "--rows", "pr-dirac", "--budget", "0.001", "--out", "OUT/file/x"], "Not a directory"),
    (["run", "modes-2d", "--network", "mlp-100000000", "--out", "OUT/run"], "METAREPLAY_MAX_MEMORY_GB"),
    (
        ["run", "modes-2d", "--method", "ebm", "--network", "energy-1000000000", "--out", "OUT/run"],
        "METAREPLAY_MAX_MEMORY_GB",
    ),
    (["run", "modes-2d", "--set", "hypernet.hidden=[1000000000]", "--out", "OUT/run"], "METAREPLAY_MAX_MEMORY_GB"),
    (["run", "modes-2d", "--set", "threads=100000", "--out", "OUT/run"], "METAREPLAY_MAX_THREADS"),
    (["run", "modes-2d", "--set", f"seed={'9' * 30}", "--out", "OUT/run"], "seed="),
]


@pytest.mark.parametrize(("arguments", "message"), ODD_PATHS, ids=[" ".join(a)[:40] for a, _ in ODD_PATHS])
def test_odd_paths_and_absurd_sizes_are_one_message(
    arguments: list[str], message: str, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    result = command(*(argument.replace("OUT", str(tmp_path)) for argument in arguments))
    assert result.code == 2
    assert message in result.err
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("kind", [KeyError, RecursionError, AssertionError])
def test_a_bug_is_one_sentence_with_its_traceback_in_a_file(
    kind: type[Exception], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise kind("[red]x")

    monkeypatch.setattr("metareplay.report.write_report", fails)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = command("report", tmp_path / "run")
    assert result.code == 1
    assert result.err.startswith("error: an unexpected error (")
    assert result.err.count("\n") == 1
    assert kind.__name__ in result.err
    assert "[red]x" in result.err
    [path] = tmp_path.glob("metareplay-fault-*.txt")
    assert str(path) in result.err
    assert "in fails" in path.read_text()


def test_memory_that_is_not_there_is_one_sentence(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("metareplay.report.write_report", fails)
    result = command("report", "run")
    assert result.code == 2
    assert result.err.startswith("error: there is not enough memory; ")
    assert result.err.count("\n") == 1
