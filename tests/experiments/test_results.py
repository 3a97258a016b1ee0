"""results.json as a typed object: what it takes, what it refuses, and that nothing is lost on the way."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from metareplay.errors import DataError
from metareplay.experiments.plan import Plan
from metareplay.experiments.results import Results, read_results
from metareplay.experiments.run import Run
from metareplay.learner.config import RunConfig

LEAST = {"schema": 1, "benchmark": "modes-2d", "method": "vcl", "network": "mlp-4", "seed": 0, "num_tasks": 3}


def written(folder: Path, **content: Any) -> Path:
    path = folder / "results.json"
    path.write_text(json.dumps(LEAST | content))
    return path


@pytest.mark.parametrize(("benchmark", "method"), [("modes-2d", "pr-bbb-cs"), ("regression-1d", "sp-bbb")])
def test_a_file_is_read_as_it_was_written(
    benchmark: str, method: str, tmp_path: Path, tiny_config: Callable[..., RunConfig]
) -> None:
    settings = {"training.iterations": 12, "training.record_signals": benchmark == "regression-1d"}
    results = Run(Plan.of(tiny_config(method, settings, benchmark=benchmark), tmp_path / "run")).execute()
    path = tmp_path / "run" / "results.json"
    assert read_results(path) == results
    content = json.loads(path.read_text())
    assert results.content() == content
    assert ("task_boundaries" in content) == (benchmark == "regression-1d")
    assert list(content)[:2] == ["schema", "benchmark"]
    if results.mse is not None and results.answers is not None and results.answers.rmse is not None:
        # what tables show with the task inferred is what a user gets: the answers that mix tasks
        assert results.mse.tinfer_final == pytest.approx(results.answers.rmse**2)
        assert (results.mse.tinfer_by_criterion or {})["stats"] == results.mse.tinfer_final


def test_an_older_file_lacks_what_came_later(tmp_path: Path) -> None:
    results = read_results(written(tmp_path, tgiven_final=90, mse=None, scenario=None, added_later=[1]))
    assert (results.tgiven_final, results.mse, results.calibration_error, results.task_names) == (90.0, None, None, [])
    assert not results.regression
    assert read_results(written(tmp_path, problem="regression")).regression


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"schema": 2}, "does not have schema 1"),
        ({"schema": None}, "does not have schema 1"),
        ({"seed": None, "network": None}, "lacks network, seed"),
        ({"tgiven_final": "high"}, "is damaged: tgiven_final: input should be a valid number"),
        ({"tinfer_final": {"ent": "high"}}, "is damaged: tinfer_final.ent: "),
        ({"mse": [1.0]}, "is damaged: mse: "),
        ({"tgiven_matrix": [[1.0], "x"]}, "is damaged: tgiven_matrix.1: "),
        ({"num_tasks": 0}, "is damaged: num_tasks: "),
        ({"problem": "ranking"}, "is damaged: problem: "),
    ],
)
def test_a_damaged_file_is_refused_with_its_name_and_field(content: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = written(tmp_path, **content)
    with pytest.raises(DataError) as caught:
        read_results(path)
    assert str(caught.value).startswith(f"{path} ")
    assert words in str(caught.value)
    assert "repeat the run" in str(caught.value)


def test_a_file_that_is_no_text_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "results.json", tmp_path / "none.json"):
        with pytest.raises(DataError, match=r"cannot be read|is not valid JSON"):
            read_results(path)


def test_results_cannot_be_changed(tmp_path: Path) -> None:
    results = Results.model_validate(LEAST)
    with pytest.raises(ValidationError):
        results.seed = 3
