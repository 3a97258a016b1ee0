"""Commands that look: help, version, lists, tasks, predict."""

import csv
import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from metareplay import ContinualClassifier, ContinualRegressor, __version__
from metareplay.benchmarks.registry import BENCHMARKS
from metareplay.inference.criteria import CRITERIA, criteria_for
from metareplay.learner import store
from metareplay.learner.config import setting_descriptions
from metareplay.learner.methods import METHODS, OUTPUTS
from metareplay.learner.recipe_book import all_recipes
from metareplay.paper.tables import paper_tables
from metareplay.posteriors.base import FAMILIES, MATCHINGS
from metareplay.report.figures.drawings import DRAWINGS
from metareplay.strategies.base import STRATEGIES
from metareplay.task_maps.base import TASK_MAPS

Command = Callable[..., Any]
Array = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def points() -> Array:
    return np.random.default_rng(0).normal(size=(40, 2))


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory, points: Array) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    model = ContinualClassifier("pr-bbb", "mlp-5", settings={"training.iterations": 20, "inference.samples": 5})
    model.learn_task(points, np.where(points[:, 0] > 0, "right", "left"), name="sides")
    model.learn_task(points + 9, np.where(points[:, 1] > 0, "up", "down"), name="heights")
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def regressor(tmp_path_factory: pytest.TempPathFactory, points: Array) -> Path:
    folder = tmp_path_factory.mktemp("regressor")
    model = ContinualRegressor("pr-bbb", "mlp-5", settings={"training.iterations": 5, "inference.samples": 5})
    model.learn_task(points, points[:, 0], name="first").learn_task(points + 3, points[:, 1], name="second").save(
        folder
    )
    return folder


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_version_of_the_module() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "metareplay", "--version"], capture_output=True, text=True, check=True
    )
    assert (result.stdout, result.stderr) == (f"metareplay {__version__}\n", "")


@pytest.mark.parametrize("name", ["run", "report", "list", "predict", "tasks"])
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_help_of_every_command_has_an_example(name: str, option: str, command: Command) -> None:
    result = command(name, option)
    assert result.code == 0
    assert "Example" in result.out
    assert f"metareplay {name} " in result.out.partition("Example")[2]


def test_the_help_lists_every_command(command: Command) -> None:
    result = command("--help")
    assert result.code == 0
    assert all(name in result.out for name in ("run", "report", "figure", "list", "predict", "tasks"))


KINDS: dict[str, list[str]] = {
    "benchmarks": list(BENCHMARKS),
    "methods": list(METHODS),
    "networks": ["mlp-"],
    "criteria": list(CRITERIA),
    "tables": list(paper_tables()),
    "figures": list(DRAWINGS),
    "recipes": [recipe.name for recipe in all_recipes()],
    "settings": list(setting_descriptions()),
    "parts": [
        part.name for registry in (FAMILIES, MATCHINGS, TASK_MAPS, STRATEGIES, OUTPUTS) for part in registry.values()
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_list_names_everything(kind: str, command: Command) -> None:
    result = command("list", kind)
    first_words = [line.split()[0] for line in result.out.splitlines()[1:] if line.strip()]
    assert result.code == 0
    if kind == "networks":
        assert any(word.startswith("mlp-") for word in first_words)
    else:
        assert first_words == KINDS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_every_list_as_markdown(kind: str, command: Command) -> None:
    names = re.findall(r"^\| `([^`]+)` \|", command("list", kind, "--markdown").out, re.MULTILINE)
    if kind == "networks":
        assert names[0].startswith("mlp-")
    elif kind == "settings":  # once for each group of parts that gives it a meaning or a default of its own
        assert set(names) == set(KINDS[kind])
    else:
        assert names == KINDS[kind]


def test_all_lists_at_once(command: Command) -> None:
    shown = command("list", "all").out
    assert all(name in shown for names in KINDS.values() for name in names)


def test_tasks_of_a_classifier(classifier: Path, command: Command) -> None:
    result = command("tasks", classifier)
    assert result.code == 0
    head, *rows = [line.split() for line in result.out.splitlines()[:3]]
    assert " ".join(head) == "task classes examples date accuracy stored features moved not followed"
    assert [row[:4] for row in rows] == [["0", "sides", "left,", "right"], ["1", "heights", "down,", "up"]]
    assert all("KiB" in row for row in rows)
    assert "never examples" in result.out.splitlines()[3]


def test_tasks_of_a_regressor(regressor: Path, command: Command) -> None:
    assert "(regression)" in command("tasks", regressor).out


def write_inputs(path: Path, points: Array) -> None:
    if path.suffix == ".npy":
        np.save(path, points)
    elif path.suffix == ".npz":
        np.savez(path, x=points)
    else:
        header = "a,b\n" if "header" in path.name else ""
        path.write_text(header + "".join(f"{a!r},{b!r}\n" for a, b in points.tolist()))


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.csv", "header.csv"])
def test_predictions_of_every_kind_of_file(
    name: str, classifier: Path, points: Array, command: Command, tmp_path: Path
) -> None:
    write_inputs(tmp_path / name, points)
    result = command("predict", classifier, tmp_path / name)
    assert (result.code, result.err) == (0, "")
    expected = ContinualClassifier.load(classifier).predict_full(points)
    answers = rows(result.out)
    assert [answer["label"] for answer in answers] == expected.labels.tolist()
    assert [answer["task"] for answer in answers] == expected.task
    for answer, row in zip(answers, range(len(points)), strict=True):
        assert float(answer["probability"]) == pytest.approx(expected.probabilities[row].max(), rel=1e-5)
        for name_ in ("total", "aleatoric", "epistemic"):
            assert float(answer[name_]) == pytest.approx(getattr(expected, name_)[row], rel=1e-5, abs=1e-300)


def test_the_model_is_read_once(
    classifier: Path, points: Array, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    monkeypatch.setattr(
        store,
        "read_generation",
        lambda folder, number=None, reader=store.read_generation: (read.append(folder), reader(folder, number))[1],
    )
    np.save(tmp_path / "x.npy", points)
    assert command("predict", classifier, tmp_path / "x.npy").code == 0
    assert len(read) == 1


def test_a_given_task_is_used(classifier: Path, points: Array, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", points)
    for task, labels in (("sides", {"left", "right"}), ("heights", {"down", "up"})):
        answers = rows(command("predict", classifier, tmp_path / "x.npy", "--task", task).out)
        assert {answer["task"] for answer in answers} == {task}
        assert {answer["label"] for answer in answers} <= labels


@pytest.mark.parametrize("criterion", [each.name for each in criteria_for("classification")])
def test_every_criterion(criterion: str, classifier: Path, points: Array, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", points)
    answers = rows(command("predict", classifier, tmp_path / "x.npy", "--criterion", criterion).out)
    expected = ContinualClassifier.load(classifier).predict_task(points, criterion=criterion)
    assert [answer["task"] for answer in answers] == expected


def test_batch_wise_inference_gives_one_task(classifier: Path, points: Array, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", points)
    answers = rows(command("predict", classifier, tmp_path / "x.npy", "--batch-wise", 40).out)
    assert len({answer["task"] for answer in answers}) == 1


def test_answers_go_to_a_file(classifier: Path, points: Array, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", points)
    shown = command("predict", classifier, tmp_path / "x.npy").out
    result = command("predict", classifier, tmp_path / "x.npy", "--out", tmp_path / "answers.csv")
    assert (result.code, result.out) == (0, "")
    assert (tmp_path / "answers.csv").read_text() == shown


@pytest.mark.parametrize("option", [("--predictive", "moments"), ("--adaptive", "1000000")])
def test_faster_predictions(
    option: tuple[str, str], classifier: Path, points: Array, command: Command, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", points)
    answers = rows(command("predict", classifier, tmp_path / "x.npy", *option).out)
    settings = {f"inference.{option[0].removeprefix('--')}": option[1] if option[1] == "moments" else float(option[1])}
    expected = ContinualClassifier.load(classifier, settings=settings).predict_full(points)
    assert [answer["task"] for answer in answers] == expected.task
    assert [float(answer["total"]) for answer in answers] == pytest.approx(expected.total, rel=1e-5)


def test_predictions_of_a_regressor(regressor: Path, points: Array, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", points)
    answers = rows(command("predict", regressor, tmp_path / "x.npy").out)
    expected = ContinualRegressor.load(regressor).predict_full(points)
    assert [answer["task"] for answer in answers] == expected.task
    np.testing.assert_allclose([float(answer["mean"]) for answer in answers], expected.mean, rtol=1e-5)
    np.testing.assert_allclose([float(answer["std"]) for answer in answers], expected.std, rtol=1e-5)
