"""Data frames of pandas and polars: columns by name, what they hold, and what is refused."""

import datetime
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.errors import DataError, DataWarning, TrainingWarning
from metareplay.experiments.plan import make_plan
from metareplay.experiments.run import Run

pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")
QUICK: dict[str, Any] = {"training.iterations": 3, "inference.samples": 2}
ROWS = 8
RAW: dict[str, list[Any]] = {
    "height": [1.5, 2.0, 3.25, 4.0, 5.5, 6.0, 7.25, 8.0],
    "count": list(range(ROWS)),
    "colour": ["red", "green"] * 4,
    "wild": [True, False, False, True] * 2,
    "seen": [datetime.date(2024, 1, day) for day in range(1, ROWS + 1)],
    "kind": ["ash", "oak"] * 4,
}
FRAMES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pandas.DataFrame,
    "polars": polars.DataFrame,
    "pyarrow": pyarrow.table,
}
Make = Callable[[dict[str, Any]], Any]


@pytest.fixture(params=FRAMES.values(), ids=FRAMES)
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


def changed(**columns: Any) -> dict[str, Any]:
    """The raw columns with some replaced; None removes one."""
    return {name: values for name, values in {**RAW, **columns}.items() if values is not None}


def learned(frame: Any, y: Any = "kind") -> ContinualClassifier:
    return ContinualClassifier("sp-dirac", "mlp-8", settings=QUICK).learn_task(frame, y, name="spring")


def test_columns_are_found_by_name_in_any_order(make: Make, tmp_path: Path) -> None:
    model = learned(make(RAW))
    assert model.input_shape == (1 + 1 + 2 + 1 + 5,)  # a date is days, time of year (2) and weekday (2)
    expected = model.predict_proba(make(RAW))
    turned = {name: RAW[name] for name in reversed(RAW)} | {"note": ["x"] * ROWS}
    assert np.array_equal(model.predict_proba(make(turned)), expected)
    assert np.array_equal(model.predict_proba(make(changed(kind=None))), expected)
    model.save(tmp_path)
    again = ContinualClassifier.load(tmp_path)
    assert np.array_equal(again.predict_proba(make(turned)), expected)
    again.learn_task(make(RAW), "kind", name="summer")
    assert again.score(make(RAW), "kind", task="spring") == model.score(make(RAW), RAW["kind"])


def test_all_libraries_give_the_same_inputs() -> None:
    answers = [learned(made(RAW)).predict_proba(made(RAW)) for made in FRAMES.values()]
    assert all(np.array_equal(answer, answers[0]) for answer in answers)


def test_targets_may_be_a_column_of_their_own(make: Make) -> None:
    frame = make(changed(kind=None))
    targets = make({"kind": RAW["kind"]})["kind"]
    model = learned(frame, targets)
    assert np.array_equal(model.predict_proba(frame), learned(make(RAW)).predict_proba(frame))
    with pytest.raises(DataError, match="the target in row 1 is missing"):
        learned(frame, make({"kind": ["ash", None] * 4})["kind"])


@pytest.mark.parametrize("missing", [None, float("nan"), pandas.NA, pandas.NaT])
def test_missing_labels_in_lists_and_arrays(missing: Any) -> None:
    labels: list[Any] = ["ash", missing, *["oak"] * 6]
    for y in (labels, np.array(labels, dtype=object)):
        with pytest.raises(DataError, match=r"the label in row 1 is missing .*every example needs a label"):
            learned(np.zeros((ROWS, 2)), y)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"colour": None}, r"the data frame has no column 'colour' .*besides the others it has 'kind'"),
    ({"colour": None, "count": None}, r"has no columns 'count', 'colour'"),
    ({"height": ["tall"] * ROWS}, r"row 0: column 'height' holds text such as 'tall', but must hold"),
    ({"height": ["1", "2", "tall", *["3"] * 5]}, r"row 2: column 'height' holds text such as 'tall'"),
    ({"height": [datetime.timedelta(1)] * ROWS}, r"'height' holds neither .*\.dt\.total_seconds\(\)"),
    ({"height": [1.0, None, *[2.0] * 6]}, r"row 1: column 'height' is missing a value; fill it in"),
    ({"height": [1.0, 2.0, 1e300, *[2.0] * 5]}, r"row 2: column 'height' has the value 1e\+300, which is too large"),
    ({"height": [1.0, 2.0, float("inf"), *[2.0] * 5]}, r"row 2: column 'height' has an infinite value"),
    ({"seen": ["soon"] * ROWS}, r"row 0: 'soon' in column 'seen' is not a date"),
]


@pytest.mark.parametrize(("columns", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_wrong_columns_are_named(columns: dict[str, Any], message: str, make: Make) -> None:
    model = learned(make(RAW))
    for call in (model.predict, lambda frame: model.learn_task(frame, "kind")):
        with pytest.raises(DataError, match=message):
            call(make(changed(**columns)))
    assert model.task_names == ["spring"]


def test_a_later_task_has_no_further_columns(make: Make) -> None:
    model = learned(make(RAW))
    with pytest.raises(DataError, match="a column 'smell' that the first task did not have"):
        model.learn_task(make({**RAW, "smell": [0.0] * ROWS}), "kind")
    with pytest.raises(DataError, match="no column 'sort' \\(y names it\\)"):
        model.learn_task(make(RAW), "sort")
    with pytest.raises(DataError, match="y='kind' names a column, but X is not a data frame"):
        model.learn_task(np.zeros((8, 10)), "kind")


def test_what_a_column_could_be_converted_to(make: Make) -> None:
    with pytest.raises(DataError, match=r"'seen' holds neither .*convert durations .*\.dt\.total_seconds\(\), or"):
        learned(make(changed(seen=[datetime.timedelta(hours=hour) for hour in range(ROWS)])))
    periods = pandas.period_range("2024-01", periods=ROWS, freq="M")
    with pytest.raises(DataError, match=r"convert periods to dates with \.dt\.to_timestamp\(\)"):
        learned(pandas.DataFrame(changed(seen=periods)))


def test_the_columns_that_are_there_are_named(make: Make) -> None:
    model = learned(make(RAW))
    frame = make(changed(kind=None, colour=None))
    with pytest.raises(DataError, match=r"no column 'colour' .*; it has 'height', 'count', 'wild', 'seen'"):
        model.predict(frame)


def test_a_single_example_is_warned_about() -> None:
    with pytest.warns(TrainingWarning, match="task 'spring': it has a single example"):
        learned(np.zeros((1, 2)), ["ash"])


def test_a_list_of_columns_is_not_a_target(make: Make) -> None:
    model = ContinualRegressor("sp-bbb", "mlp-4", settings=QUICK)
    with pytest.raises(DataError, match=r"y=\['height', 'count'\] is a list of columns; .*a two-dimensional y"):
        model.learn_task(make(changed(kind=None)), ["height", "count"])
    frame = pandas.DataFrame(changed(kind=None))
    model.learn_task(frame.drop(columns=["height", "count"]), frame[["height", "count"]])  # as the message says
    assert model.predict(frame).shape == (ROWS, 2)


def test_a_category_never_seen_is_other_and_warned_about(make: Make) -> None:
    model = learned(make(RAW))
    frame = make(changed(colour=["red", "pink", "blue", *["red"] * 5]))
    words = r"column 'colour': 2 rows hold values not in the training data \('pink', 'blue'; first: .*row 1\)"
    with pytest.warns(DataWarning, match=words):
        answer = model.predict_proba(frame)
    with pytest.warns(DataWarning, match="'black'"):
        same = model.predict_proba(make(changed(colour=["red", "black", "black", *["red"] * 5])))
    assert np.array_equal(answer, same)  # all others are one value


def test_declared_categories_are_known_before_they_are_seen() -> None:
    values = ["blue", "green", "red"]
    frames = [
        pandas.DataFrame(changed(colour=pandas.Categorical(RAW["colour"], categories=values))),
        polars.DataFrame(RAW, schema_overrides={"colour": polars.Enum(values)}),
    ]
    for frame in frames:
        model = learned(frame)
        assert model.inputs["columns"][2] == {"name": "colour", "values": values}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.predict(pandas.DataFrame(changed(colour=["blue"] * ROWS)))


def test_a_model_that_learned_from_arrays_takes_numbers_in_order(make: Make) -> None:
    x = np.array([RAW["height"], RAW["count"]]).T
    model = learned(x, RAW["kind"])
    frame = make({"a": RAW["height"], "b": RAW["count"]})
    assert np.array_equal(model.predict_proba(frame), model.predict_proba(x))
    with pytest.raises(DataError, match="column 'b' holds text, but this model learned from arrays of numbers"):
        model.predict(make({"a": RAW["height"], "b": RAW["colour"]}))


def test_numbers_in_a_frame_teach_what_an_array_teaches(make: Make) -> None:
    x = np.array([RAW["height"], RAW["count"]]).T
    model = learned(make({"a": RAW["height"], "b": RAW["count"]}), RAW["kind"])
    assert np.array_equal(model.predict_proba(x), learned(x, RAW["kind"]).predict_proba(x))


def test_the_encoding_of_the_command_line_serves_raw_frames(make: Make, tmp_path: Path) -> None:
    polars.DataFrame({**RAW, "month": ["may", "june"] * 4, "id": range(ROWS)}).write_csv(tmp_path / "plants.csv")
    given = {"data.path": str(tmp_path / "plants.csv"), "data.label": "height", "data.tasks_by": "month"}
    given |= {"data.ignore": "id", "data.missing": "fill", "network": "mlp-4", "method": "sp-bbb"}
    Run(make_plan(given, QUICK, out=tmp_path / "run")).execute()
    model = ContinualRegressor.load(tmp_path / "run")
    raw = {name: RAW[name] for name in reversed(RAW) if name != "height"}
    assert np.array_equal(model.predict(make(raw)), model.predict(pandas.read_csv(tmp_path / "plants.csv")))
    frame = make({**RAW, "month": ["july"] * ROWS, "id": list(range(ROWS))})
    model.learn_task(frame, "height", name="july")  # the label, the task and what was ignored are no surprise
    assert model.task_names == ["june", "may", "july"] or model.task_names == ["may", "june", "july"]


def test_numbers_in_text_are_read_like_those_of_the_file(make: Make, tmp_path: Path) -> None:
    rows = [f"{row},5;{'ab'[row % 2]};{'st'[row % 4 // 2]}" for row in range(16)]
    (tmp_path / "rows.csv").write_text("\n".join(["size;label;task", *rows]) + "\n")
    given = {"data.path": str(tmp_path / "rows.csv"), "network": "mlp-4", "method": "sp-dirac"}
    Run(make_plan(given, QUICK, out=tmp_path / "run")).execute()
    model = ContinualClassifier.load(tmp_path / "run")
    texts, numbers = make({"size": ["1,234", "2"]}), make({"size": [1.234, 2.0]})
    assert np.array_equal(model.predict_proba(texts), model.predict_proba(numbers))


def test_frames_of_other_kinds() -> None:
    with pytest.raises(DataError, match=r"call its method collect\(\)"):
        learned(polars.DataFrame(RAW).lazy(), RAW["kind"])
    twice = pandas.DataFrame(np.zeros((2, 2)), columns=["a", "a"])
    with pytest.raises(DataError, match="two columns called 'a'"):
        learned(twice, ["x", "y"])
    with pytest.raises(DataError, match="no rows"):
        learned(pandas.DataFrame(RAW).iloc[:0], "kind")
    with pytest.raises(DataError, match="column 'a' holds neither numbers, dates nor text; leave it out with drop"):
        learned(pandas.DataFrame({"a": [[1], [2]]}), ["x", "y"])
    missing = pandas.DataFrame({"a": pandas.array([1, None], dtype="Int64")})
    with pytest.raises(DataError, match="row 1: column 'a' is missing a value"):
        learned(missing, ["x", "y"])
    zoned = pandas.DataFrame({"a": pandas.to_datetime(["2024-01-01 01:00", "2024-01-02 01:00"]).tz_localize("CET")})
    assert learned(zoned, ["x", "y"]).inputs["columns"] == [{"name": "a", "date": ["days", "year", "week"]}]  # UTC
