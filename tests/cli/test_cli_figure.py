"""`metareplay figure`: files for a paper, from what a run kept or from its model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Command = Callable[..., Any]
CRITERIA = ("variance", "stats")
"""Those of which there is a figure; a run stores more of them, and all are drawn alike."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run of a toy problem; of some criteria it forgets which tasks they confuse."""
    from metareplay.experiments.plan import Plan
    from metareplay.experiments.run import Run
    from metareplay.learner.config import build_config
    from metareplay.learner.recipe_book import default_settings

    defaults, _ = default_settings("regression-1d", "pr-bbb", "mlp-10-10")
    tiny = {"training.iterations": 8, "training.log_every": 2, "inference.samples": 3}
    folder = tmp_path_factory.mktemp("figure") / "run"
    Run(Plan.of(build_config(defaults, tiny, "test"), folder)).execute()
    results = json.loads((folder / "results.json").read_text())
    results["task_confusion"] = {name: results["task_confusion"][name] for name in CRITERIA}
    (folder / "results.json").write_text(json.dumps(results))
    return folder


def test_one_figure_is_one_file(finished: Path, command: Command, tmp_path: Path) -> None:
    result = command("figure", "regression", finished, "--out", tmp_path / "here" / "posteriors.pdf")
    assert (result.code, result.err) == (0, "")
    assert result.out == f"figure: {tmp_path}/here/posteriors.pdf\n"
    assert (tmp_path / "here" / "posteriors.pdf").read_bytes().startswith(b"%PDF")


def test_a_folder_gets_vectors_and_pixels(finished: Path, command: Command) -> None:
    result = command("figure", "all", finished, "--theme", "dark")
    assert result.code == 0, result.err
    names = {path.name for path in (finished / "figures").iterdir()}
    confusions = {f"confusion-{name}" for name in CRITERIA}
    stems = {"curves", "matrix", "strangeness", "uncertainty", "regression", *confusions}
    assert names == {f"{stem}.{ending}" for stem in stems for ending in ("svg", "pdf", "png")}
    assert "#14171c" in (finished / "figures" / "matrix.svg").read_text()  # the dark theme's paper
    assert all(str(finished / "figures" / name) in result.out for name in names)


def test_what_the_folder_lacks_is_computed_from_the_model(finished: Path, command: Command, tmp_path: Path) -> None:
    kept = finished / "predictive.safetensors"
    before = command("figure", "regression", finished, "--out", tmp_path / "one" / "figure.svg")
    kept.rename(tmp_path / "aside")
    after = command("figure", "regression", finished, "--out", tmp_path / "two" / "figure.svg")
    (tmp_path / "aside").rename(kept)
    assert (before.code, after.code) == (0, 0), after.err
    assert (tmp_path / "one" / "figure.svg").read_bytes() == (tmp_path / "two" / "figure.svg").read_bytes()
    weights = command("figure", "weights", finished, "--out", tmp_path / "weights.png")
    assert weights.code == 0, weights.err
    assert (tmp_path / "weights.png").read_bytes().startswith(b"\x89PNG")


def test_methods_have_names_of_their_own(finished: Path, command: Command, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    settings = yaml.safe_load((finished / "config.yaml").read_text())
    (other / "config.yaml").write_text(yaml.safe_dump(settings | {"method": "pr/x"}))
    (other / "results.json").write_text((finished / "results.json").read_text().replace('"pr-bbb"', '"pr/x"'))
    result = command("figure", "matrix", finished, other, "--out", tmp_path / "out")
    assert result.code == 0, result.err
    assert {path.name for path in (tmp_path / "out").glob("*.svg")} == {"pr-bbb-matrix.svg", "pr-x-matrix.svg"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("posteriors",), "figure 'posteriors' is unknown; choose one of all, curves"),
        (("all", "--out", "one.svg"), "is one file, but there are 7 figures"),
        (("reliability",), "nothing that figure 'reliability' could show"),
        (("maps",), "nothing that figure 'maps' could show"),
    ],
)
def test_what_cannot_be_drawn_is_explained(
    arguments: tuple[str, ...], words: str, finished: Path, command: Command
) -> None:
    result = command("figure", arguments[0], finished, *arguments[1:])
    assert result.code == 2
    assert words in result.err
    assert "Traceback" not in result.err
