"""A user's own data from ``metareplay run --data`` to ``metareplay predict``, and the mistakes a user can make."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

Command = Callable[..., Any]
KINDS = {"spring": ("ash", "oak"), "summer": ("elm", "fir", "yew"), "autumn": ("bay", "box", "fig", "ivy")}
FAST = ("--network", "mlp-16", "--set", "inference.samples=5", "--set", "inference.batch_wise=20", "--quiet")


def write_plants(path: Path, per_kind: int = 12, seed: int = 0) -> Path:
    """Three tasks with 2, 3 and 4 classes: numbers, a text column and an identifier."""
    rng = np.random.default_rng(seed)
    lines = ["id,height,width,colour,kind,season"]
    for number, (season, kind) in enumerate((season, kind) for season, kinds in KINDS.items() for kind in kinds):
        for row in range(per_kind):
            height, width = rng.normal((100 * np.cos(number), 3 * np.sin(number)), (5, 0.15))
            lines.append(f"p{number}-{row},{height:.2f},{width:.3f},{'red' if number % 2 else 'green'},{kind},{season}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def plants(tmp_path: Path) -> Path:
    return write_plants(tmp_path / "plants.csv")


def table_options(plants: Path, out: Path) -> list[object]:
    return ["run", "--data", plants, "--label", "kind", "--tasks-by", "season", "--ignore", "id", "--out", out]


def answers(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_table_from_run_to_predict(plants: Path, command: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = command(*table_options(plants, out), *FAST[:-1], "--set", "training.iterations=250")
    assert (result.code, result.err) == (0, "")
    assert "pr-bbb on custom:plants (scenario class, 3 tasks), mlp-16" in result.out
    assert "90 training and 18 test examples of 4 inputs" in result.out
    assert "classification: the labels are 9 names" in result.out
    assert "colour (2)" in result.out
    assert "task autumn: classes bay, box, fig, ivy; 40 + 8 examples" in result.out
    results = json.loads((out / "results.json").read_text())
    assert results["tgiven_final"] > 80
    assert results["task_names"] == list(KINDS)
    assert results["benchmark"] == "custom:plants"
    assert (out / "report.html").is_file()
    assert "autumn" in command("tasks", out).out

    (tmp_path / "new.csv").write_text("width,height,colour,note\n0.0,100.0,green,first\n")  # another order, no label
    rows = answers(command("predict", out, tmp_path / "new.csv", "--task", "spring").out)
    assert [(row["label"], row["task"]) for row in rows] == [("ash", "spring")]


@pytest.mark.usefixtures("no_report")
def test_the_stored_settings_repeat_the_run_and_notice_changed_data(
    plants: Path, command: Command, tmp_path: Path, tiny: list[str]
) -> None:
    out = tmp_path / "run"
    assert command(*table_options(plants, out), "--network", "mlp-4", *tiny).code == 0
    stored = yaml.safe_load((out / "config.yaml").read_text())
    assert stored["data"]["path"] == str(plants)
    assert stored["benchmark"] == "custom"
    again = tmp_path / "again"
    assert command("run", "--config", out / "config.yaml", "--out", again, "--quiet").code == 0
    same = [json.loads((folder / "results.json").read_text())["tgiven_matrix"] for folder in (out, again)]
    assert same[0] == same[1]
    assert command("run", "--out", out, "--resume", "--quiet").code == 0  # finished: not repeated
    assert command(*table_options(plants, out), "--network", "mlp-4", *tiny, "--resume").code == 0

    moved = plants.rename(tmp_path / "moved.csv")
    assert command("run", "--data", moved, "--out", out, "--resume", "--quiet").code == 0
    write_plants(plants, seed=1)
    for arguments in (
        ["run", "--out", out, "--resume"],
        [*table_options(plants, out), "--network", "mlp-4", *tiny, "--resume"],
    ):
        result = command(*arguments)
        assert result.code == 2
        assert "changed since the run" in result.err.replace("changed since the run in", "changed since the run")
    (out / "results.json").unlink()  # as if it had been interrupted
    assert "changed since the run" in command("run", "--out", out, "--resume").err


@pytest.mark.usefixtures("no_report")
def test_one_class_in_all_is_refused(command: Command, tmp_path: Path) -> None:
    rows = [f"{row},a,{month}" for month in ("may", "june") for row in range(8)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,kind,month", *rows]) + "\n")
    refused = command("run", "--data", tmp_path / "rows.csv", "--label", "kind", "--tasks-by", "month")
    assert refused.code == 2
    assert "all examples have the class 'a'" in refused.err


@pytest.mark.usefixtures("no_report")
def test_a_class_alone_is_refused_without_statistics_before_anything_is_learned(
    command: Command, tmp_path: Path, tiny: list[str]
) -> None:
    rows = [f"{row},{kind},{month}" for kind, month in (("a", "may"), ("b", "may"), ("c", "june")) for row in range(8)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,kind,month", *rows]) + "\n")
    options = ["--data", tmp_path / "rows.csv", "--label", "kind", "--tasks-by", "month", "--network", "mlp-4", *tiny]
    refused = command("run", *options, "--out", tmp_path / "run", "--set", "statistics.collect=false")
    assert refused.code == 2
    assert "task 'june' has only the class 'c', and without task statistics pr-bbb could not tell it" in refused.err
    assert not (tmp_path / "run").exists()
    assert command("run", *options, "--out", tmp_path / "run", "--set", "statistics.collect=true").code == 0


@pytest.mark.usefixtures("no_report", "seeds_here")
def test_a_command_reads_the_data_once(
    plants: Path, command: Command, tmp_path: Path, tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it does with them: describe them, check a run that replaces another, train, share them between seeds."""
    from metareplay.benchmarks import own

    read, calls = own.read_examples, list[str]()
    monkeypatch.setattr(own, "read_examples", lambda settings: (calls.append(settings.path), read(settings))[1])
    options = [word for word in tiny if word != "--quiet"]
    for number, extra in enumerate(([], ["--overwrite"], ["--overwrite", "--seeds", 2])):
        result = command(*table_options(plants, tmp_path / "run"), "--network", "mlp-4", *options, *extra)
        assert (result.code, result.err) == (0, "")
        assert len(calls) == number + 1
    assert "2 seeds" in result.out


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("method", ["pr-dirac", "sp-bbb", "vcl", "ewc-multihead", "exp-replay", "joint", "pr-radial"])
def test_other_methods_learn_a_table(
    method: str, plants: Path, command: Command, tmp_path: Path, tiny: list[str]
) -> None:
    result = command(*table_options(plants, tmp_path / "run"), "--method", method, "--network", "mlp-4", *tiny)
    assert (result.code, result.err) == (0, "")


def test_a_table_of_real_targets(command: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        (year, x, 1000 * (year - 2018) + 200 * x + rng.normal())
        for year in (2019, 2020)
        for x in rng.uniform(-1, 1, 30)
    ]
    (tmp_path / "prices.csv").write_text(
        "year,size,price\n" + "".join(f"{year},{x:.4f},{price:.2f}\n" for year, x, price in rows)
    )
    out = tmp_path / "run"
    options = ["--data", tmp_path / "prices.csv", "--label", "price", "--tasks-by", "year", "--out", out]
    result = command("run", *options, "--set", "training.iterations=400", "--set", "inference.samples=10")
    assert (result.code, result.err) == (0, "")
    assert "regression: the labels are non-integer numbers" in result.out
    assert "mlp-20-20" in result.out
    mse = json.loads((out / "results.json").read_text())["mse"]
    assert 0 < mse["tgiven_final"] < 60**2  # in the user's own units: prices vary by a hundred
    assert mse["tgiven_final"] > 0.1
    (tmp_path / "new.csv").write_text("size\n0.5\n")
    rows = answers(command("predict", out, tmp_path / "new.csv", "--task", "2020").out)
    assert float(rows[0]["mean"]) == pytest.approx(2100, abs=100)


def test_a_folder_of_images_from_run_to_predict(command: Command, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for number, name in enumerate(("ape", "bee", "cat", "dog")):
        for index in range(12):
            pixels = rng.integers(0, 60, (6, 6), dtype=np.uint8)
            pixels[number] += 150
            path = tmp_path / "photos" / name / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.fromarray(pixels).save(path)
    out = tmp_path / "run"
    result = command(
        "run",
        "--data",
        tmp_path / "photos",
        "--tasks-by",
        "classes:2",
        "--out",
        out,
        *FAST[:-1],
        "--set",
        "training.iterations=250",
    )
    assert (result.code, result.err) == (0, "")
    assert "1 x 6 x 6 pixels" in result.out
    assert json.loads((out / "results.json").read_text())["tgiven_final"] > 90
    rows = answers(command("predict", out, tmp_path / "photos", "--task", "classes-ape-bee").out)
    assert [row["file"] for row in rows[:2]] == ["ape/0.png", "ape/1.png"]
    assert np.mean([row["file"].startswith(row["label"]) for row in rows[:24]]) > 0.9
    one = answers(command("predict", out, tmp_path / "photos" / "bee" / "3.png").out)
    assert one[0]["file"] == "3.png"
    image.fromarray(np.zeros((5, 6), dtype=np.uint8)).save(tmp_path / "small.png")
    assert (
        "5 x 6 pixels, but the model was trained on images of 6 x 6"
        in command("predict", out, tmp_path / "small.png").err
    )


WRONG: list[tuple[list[str], str]] = [
    (["--data", "DIR/none.csv"], "none.csv does not exist; give a CSV or parquet table"),
    (["--data", "DIR/plants.csv"], "no column called label, target, class or y; name the one to predict with --label"),
    (["--data", "DIR/plants.csv", "--label", "kind", "--ignore", "id"], "add --tasks-by classes:2"),
    (["--data", "DIR/plants.csv", "--label", "kind", "--tasks-by", "month"], "has no column 'month'"),
    (["--data", "DIR/plants.csv", "--label", "kind", "--tasks-by", "season"], "'id' has 108 different values"),
    (["split-digits", "--data", "DIR/plants.csv"], "give either the benchmark split-digits or your own --data"),
    (
        ["--tasks-by", "season"],
        "data.tasks_by has no effect with pr-bbb: no data of your own are given; pass them with --data",
    ),
    (["custom"], "give them with --data"),
    (
        ["--data", "DIR/plants.csv", "--label", "kind", "--tasks-by", "season", "--ignore", "id", "--data-dir", "DIR"],
        "data_dir has no effect with pr-bbb",
    ),
    (["--data", "DIR/plants.csv", "--test-share", "1.5"], "test_share=1.5"),
    (["--data", "DIR/plants.csv", "--problem", "ranking"], "problem='ranking'"),
    (["--data", "DIR/plants.csv", "--test-data", "DIR/none.csv"], "none.csv does not exist"),
    (["--data", "DIR"], "DIR"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[message[:30] for _, message in WRONG])
def test_a_users_mistake_is_one_clear_message(
    arguments: list[str], message: str, plants: Path, command: Command, tmp_path: Path
) -> None:
    folder = plants.parent
    result = command(
        "run", *(argument.replace("DIR", str(folder)) for argument in arguments), "--out", tmp_path / "run"
    )
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    assert message.replace("DIR", str(folder)) in result.err
    assert not (tmp_path / "run").exists()


PREDICT_WRONG: list[tuple[str, str, str]] = [
    ("new.csv", "height,width\n1,2\n", "new.csv has no column 'colour'"),
    ("new.csv", "height,width,colour\n1,,red\n", "new.csv, line 2: column 'width' is missing"),
    (
        "new.csv",
        "height,width,colour\nbig,2,red\n",
        "new.csv, line 2: column 'height' holds text such as 'big', but must hold numbers",
    ),
    ("new.csv", "", "new.csv has no rows"),
    ("new.doc", "x", "new.doc has an unknown extension"),
    ("new.png", "x", "the model was not trained on image files"),
]


@pytest.mark.parametrize(
    ("name", "text", "message"), PREDICT_WRONG, ids=[message[:40] for *_, message in PREDICT_WRONG]
)
def test_a_bad_file_of_inputs(
    name: str, text: str, message: str, model: Path, command: Command, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    result = command("predict", model, tmp_path / name)
    assert result.code == 2
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from metareplay.experiments.plan import make_plan
    from metareplay.experiments.run import Run

    folder = tmp_path_factory.mktemp("model")
    plants = write_plants(folder / "plants.csv", per_kind=3)
    given = {
        "data.path": str(plants),
        "data.label": "kind",
        "data.tasks_by": "season",
        "data.ignore": "id",
        "network": "mlp-4",
    }
    Run(make_plan(given, {"training.iterations": 3, "inference.samples": 2}, out=folder / "run")).execute()
    return folder / "run"


def test_the_offline_flag_reaches_the_libraries(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    for name in ("METAREPLAY_OFFLINE", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "")
    result = command("run", "modes-2d", "--offline", "--set", "training.iterations=-1", "--out", tmp_path / "run")
    assert result.code == 2
    assert os.environ["HF_HUB_OFFLINE"] == os.environ["METAREPLAY_OFFLINE"] == "1"
