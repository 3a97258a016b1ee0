"""What ``metareplay predict`` reads and writes: standard input, formats, kept columns, probabilities, scores."""

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.experiments.plan import make_plan
from metareplay.experiments.run import Run

Command = Callable[..., Any]
NEW = "width;id;height;colour;kind;season\n0,5;007;1,234;red;ash;spring\n1,5;12345678901234567890;2,5;pink;oak;summer\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table with decimal commas and a text column."""
    folder = tmp_path_factory.mktemp("model")
    lines = ["id;height;width;colour;kind;season"]
    for row in range(24):
        kind, season = ("ash", "oak", "elm", "fir")[row % 4], ("spring", "summer")[row % 4 // 2]
        lines.append(f"p{row};{row % 4},{row % 7};0,{row % 5};{'red' if row % 3 else 'green'};{kind};{season}")
    (folder / "plants.csv").write_text("\n".join(lines) + "\n")
    given = {"data.path": str(folder / "plants.csv"), "data.label": "kind", "data.tasks_by": "season"}
    given |= {"data.ignore": "id", "network": "mlp-4", "method": "sp-bbb"}
    Run(make_plan(given, {"training.iterations": 3, "inference.samples": 2}, out=folder / "run")).execute()
    return folder / "run"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    (tmp_path / "new.csv").write_text(NEW)
    return tmp_path / "new.csv"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_table_on_standard_input(model: Path, new: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = command("predict", model, new, "--keep", "id")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(NEW.encode("utf-16"))))
    piped = command("predict", model, "-", "--keep", "id")
    assert (piped.code, piped.out) == (0, shown.out)
    assert "note: standard input is not UTF-8 and was read as UTF-16" in piped.err
    assert "first: standard input, line 3" in piped.err


def test_unseen_categories_warn_and_are_answered(model: Path, new: Path, command: Command) -> None:
    result = command("predict", model, new)
    assert result.code == 0
    assert len(rows(result.out)) == 2
    assert result.err.startswith("warning: column 'colour': 1 row holds a value not in the training data ('pink'; ")
    assert result.err.count("warning:") == 1


def test_unknown_rows_are_counted(model: Path, new: Path, command: Command, tmp_path: Path) -> None:
    far = "".join(f"900;{row};-900;red;ash;spring\n" for row in range(3))
    new.write_text("\n".join([NEW.splitlines()[0], "0,1;x;0,3;red;ash;spring"]) + "\n" + far)
    result = command("predict", model, new)
    assert [answer["known"] for answer in rows(result.out)] == ["True", "False", "False", "False"]
    assert result.err == "unknown: 3 of 4 rows (75.0 %): unlike anything the model has learned\n"
    with_file = command("predict", model, new, "--score", "--out", tmp_path / "answers.csv")
    assert (result.err in with_file.err, "unknown" in with_file.out) == (True, False)


def test_a_missing_cell_is_answered_only_by_a_model_that_fills_it_in(
    model: Path, new: Path, command: Command, tmp_path: Path
) -> None:
    new.write_text(NEW.replace("0,5;007", ";007"))
    refused = command("predict", model, new)
    assert refused.code == 2
    assert "line 2: column 'width' is missing a value; fill it in, or leave the row out." in refused.err
    assert "data.missing=drop" not in refused.err  # which changes nothing for predict
    given = {"data.path": str(model.parent / "plants.csv"), "data.label": "kind", "data.tasks_by": "season"}
    given |= {"data.ignore": "id", "data.missing": "fill", "network": "mlp-4", "method": "sp-bbb"}
    Run(make_plan(given, {"training.iterations": 3, "inference.samples": 2}, out=tmp_path / "run")).execute()
    assert len(rows(command("predict", tmp_path / "run", new).out)) == 2  # though nothing was missing in training


def test_every_format_holds_the_same(model: Path, new: Path, command: Command, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    options = ("--keep", "id,kind", "--probabilities", "all")
    for suffix in ("csv", "jsonl", "parquet"):
        result = command("predict", model, new, *options, "--out", tmp_path / f"answers.{suffix}")
        assert (result.code, result.out) == (0, "")
    table = rows((tmp_path / "answers.csv").read_text())
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert parquet.read_table(tmp_path / "answers.parquet").to_pylist() == lines
    assert list(table[0]) == list(lines[0])
    assert list(lines[0])[:4] == ["id", "kind", "label", "task"]
    assert [line["id"] for line in lines] == ["007", "12345678901234567890"]  # as written
    for text, line in zip(table, lines, strict=True):
        of_tasks = [line[name] for name in ("task_p(spring)", "task_p(summer)")]
        assert sum(of_tasks) == pytest.approx(1)
        assert line["task_probability"] == max(of_tasks)
        assert line["known"] == (line["strangeness"] <= 1)
        probabilities = {name: value for name, value in line.items() if name.startswith("p(")}
        assert list(probabilities) == ["p(ash)", "p(oak)", "p(elm)", "p(fir)"]
        assert sum(probabilities.values()) == pytest.approx(1)
        assert line["probability"] == max(probabilities.values()) == probabilities[f"p({line['label']})"]
        assert float(text["total"]) == pytest.approx(line["total"], rel=1e-5)


def test_a_kept_column_may_be_called_like_an_answer(model: Path, new: Path, command: Command) -> None:
    new.write_text(NEW.replace("id;", "label;"))
    answers = rows(command("predict", model, new, "--keep", "label").out)
    assert [answer["input_label"] for answer in answers] == ["007", "12345678901234567890"]
    assert {answer["label"] for answer in answers} <= {"ash", "oak", "elm", "fir"}


def test_the_score_of_a_classifier(model: Path, new: Path, command: Command, tmp_path: Path) -> None:
    new.write_text(NEW + "0;x;0;red;yew;spring\n0;y;0;red;;spring\n")
    result = command("predict", model, new, "--score", "--task", "spring", "--out", tmp_path / "answers.csv")
    assert result.code == 0
    labels = [answer["label"] for answer in rows((tmp_path / "answers.csv").read_text())]
    right = 100 * np.mean([labels[0] == "ash", labels[1] == "oak", False])
    assert result.out.splitlines() == [
        f"accuracy: {right:.2f} % of 3 rows (labels: kind)",
        "counted as wrong, with a label that was not learned, e.g. 'yew': 1 row",
        "left out, without a label: 1 row",
        "right task: 75.00 % of 4 rows (tasks: season)",
    ]
    shown = command("predict", model, new, "--score", "--label", "id")
    assert "labels: id" in shown.err  # beside the predictions, not among them
    assert len(rows(shown.out)) == 4


def test_tasks_that_were_not_learned_do_not_count(model: Path, new: Path, command: Command) -> None:
    new.write_text(NEW + "0;x;0;red;ash;April\n0;y;0;red;ash;April\n0;z;0;red;ash;\n")
    shown = command("predict", model, new, "--score", "--task", "spring").err.splitlines()
    assert [line for line in shown if "right task" in line] == [
        "right task: 50.00 % of 2 rows (tasks: season)",
        "not counted for the right task: 2 rows (April was not learned)",
        "not counted for the right task, without a task: 1 row",
    ]
    new.write_text(NEW.replace("spring", "April").replace("summer", "May"))
    shown = command("predict", model, new, "--score", "--task", "spring").err.splitlines()
    expected = ["not counted for the right task: 2 rows (April, May were not learned)"]
    assert [line for line in shown if "right task" in line] == expected


def test_the_score_of_arrays_and_of_a_regressor(command: Command, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    quick = {"training.iterations": 3, "inference.samples": 2}
    ContinualRegressor("sp-bbb", "mlp-4", settings=quick).learn_task(x, x[:, 0]).save(tmp_path / "real")
    ContinualClassifier("sp-bbb", "mlp-4", settings=quick).learn_task(x, x[:, 0] > 0).save(tmp_path / "classes")
    np.savez(tmp_path / "x.npz", x=x, y=x[:, 0])
    (tmp_path / "x.csv").write_text("a,id,b,y\n" + "".join(f"{a},i,{b},{int(a > 0)}\n" for a, b in x.tolist()))
    real = command("predict", tmp_path / "real", tmp_path / "x.npz", "--score").err
    expected = ContinualRegressor.load(tmp_path / "real").score(x, x[:, 0])
    assert f"R2 {expected:.4f} of 20 rows (labels: y)" in real
    classes = command("predict", tmp_path / "classes", tmp_path / "x.csv", "--score", "--keep", "id")
    expected = ContinualClassifier.load(tmp_path / "classes").score(x, x[:, 0] > 0)
    assert classes.err == f"accuracy: {100 * expected:.2f} % of 20 rows (labels: y)\n"
    assert [answer["id"] for answer in rows(classes.out)] == ["i"] * 20


def test_a_price_is_learned_and_compared_as_a_number(command: Command, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    area = random.uniform(1, 9, 60)
    lines = [f'{area:.3f},"${1000 * area:,.2f}",{row % 2}' for row, area in enumerate(area.tolist())]
    (tmp_path / "homes.csv").write_text("area,price,task\n" + "\n".join(lines) + "\n")
    options = ("--set", "training.iterations=5", "--set", "report.references=false", "--out", tmp_path / "run")
    shown = command("run", "--data", tmp_path / "homes.csv", "--label", "price", *options)
    assert "regression: the labels are non-integer numbers" in shown.err + shown.out
    scored = command("predict", tmp_path / "run", tmp_path / "homes.csv", "--score")
    assert scored.code == 0
    assert "of 60 rows (labels: price)" in scored.err


def test_several_targets_are_columns_and_are_compared_one_by_one(command: Command, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(30, 2))
    y = np.stack([x[:, 0] ** 2, 100 * np.abs(x[:, 1])], 1)
    model = ContinualRegressor("sp-bbb", "mlp-4", settings={"training.iterations": 3, "inference.samples": 2})
    model.learn_task(x, y).save(tmp_path / "two")
    np.savez(tmp_path / "x.npz", x=x, y=y)
    np.savez(tmp_path / "one.npz", x=x, y=y[:, 0])
    shown = command("predict", tmp_path / "two", tmp_path / "x.npz", "--score")
    answer = model.predict_full(x)
    assert [float(row["mean_2"]) for row in rows(shown.out)] == pytest.approx(answer.mean[:, 1].tolist(), rel=1e-4)
    assert {"mean_1", "std_1", "lower_1", "upper_2"} <= set(rows(shown.out)[0])
    for number in (1, 2):
        error = np.sqrt(np.mean((answer.mean[:, number - 1] - y[:, number - 1]) ** 2))
        assert f"root mean squared error of target {number}: {error:.4g}" in shown.err
    assert "of 30 rows (labels: y)" in shown.err
    refused = command("predict", tmp_path / "two", tmp_path / "one.npz", "--score")
    assert refused.code == 2
    assert "y has 1 target(s) for each input, but this model predicts 2" in refused.err
    ContinualClassifier("sp-bbb", "mlp-4", settings={"training.iterations": 3}).learn_task(x, x[:, 0] > 0).save(
        tmp_path / "classes"
    )
    refused = command("predict", tmp_path / "classes", tmp_path / "x.npz", "--score")
    assert refused.code == 2
    assert "y has 2 values for each input, but this model predicts one label" in refused.err


def test_what_cannot_be_done_is_refused(model: Path, new: Path, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 4)))
    mistakes = {
        ("nowhere", new, "--out", tmp_path / "answers.xlsx"): "the extension '.xlsx' is unknown; choose .csv, .jsonl",
        ("nowhere", new, "--probabilities", "some"): "--probabilities 'some' is unknown. Choose one of best, all",
        ("nowhere", new, "--label", "kind"): "--label names the column that --score compares with; add --score",
        (model, new, "--keep", "name"): "has no column 'name' (--keep names it)",
        (model, new, "--score", "--label", "name"): "has no column 'name' (--label names it)",
        (model, tmp_path / "x.npy", "--keep", "id"): "--keep names a column, but",
        (model, tmp_path / "x.npy", "--score"): "holds no array named y",
    }
    for arguments, message in mistakes.items():
        result = command("predict", *arguments)
        assert (result.code, result.out) == (2, "")
        assert message in result.err
    new.write_text(NEW.replace("kind;", "sort;"))
    assert "no column 'kind' (the label that the model learned" in command("predict", model, new, "--score").err
