"""A user's tables: columns of numbers and text, labels, tasks, gaps, and every way in which a file can be wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from metareplay.data.base import Examples
from metareplay.data.reading import read_examples
from metareplay.data.settings import DataSettings
from metareplay.errors import DataError

GOOD = "a,colour,kind,season\n1,red,x,spring\n2.5,blue,y,spring\n3,red,x,autumn\n4,red,z,autumn\n"


def read(path: Path, **settings: Any) -> Examples:
    return read_examples(DataSettings(path=str(path), **{"label": "kind", "tasks_by": "season", **settings}))


@pytest.fixture
def table(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        (tmp_path / "plants.csv").write_text(text)
        return tmp_path / "plants.csv"

    return write


def test_numbers_stay_and_text_becomes_one_input_per_value(table: Callable[[str], Path]) -> None:
    examples = read(table(GOOD))
    assert examples.x.tolist() == [[1, 0, 1], [2.5, 1, 0], [3, 0, 1], [4, 0, 1]]  # a, colour=blue, colour=red
    assert examples.inputs == {
        "kind": "table",
        "columns": [{"name": "a"}, {"name": "colour", "values": ["blue", "red"]}],
        "label": "kind",
        "task": "season",
    }
    assert [examples.labels[index] for index in examples.y] == ["x", "y", "x", "z"]
    assert examples.task is not None
    assert [examples.tasks[index] for index in examples.task] == ["spring", "spring", "autumn", "autumn"]
    assert examples.test is None
    assert examples.where(1).endswith("plants.csv, line 3")
    assert "colour (2)" in examples.notes[0]


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (["1", "0", "10"], (0, 1, 10)),
        (["b", "a", "b"], ("a", "b")),
        (["10", "9", "x"], ("10", "9", "x")),
        (["2.0", "3", "2"], (2, 3)),
        (["01", "1", "10"], ("01", "1", "10")),
    ],
)
def test_labels_are_sorted_and_keep_their_kind(
    column: list[str], labels: tuple[Any, ...], table: Callable[[str], Path]
) -> None:
    rows = "".join(f"{index},{label}\n" for index, label in enumerate(column))
    if labels[0] == "10":
        rows = rows.replace("9", "nine", 1)
        labels = ("10", "nine", "x")
    examples = read(table("a,y\n" + rows), label=None, tasks_by=None)
    assert examples.labels == labels


def test_codes_that_begin_with_a_zero_are_names_as_labels_and_tasks_and_numbers_as_inputs(
    table: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "more.csv").write_text("month,y,task\n03,2,7\n")
    examples = read(
        table("month,y,task\n01,02,007\n02,1,7\n12,02,007\n"),
        label="y",
        tasks_by="task",
        test_path=str(tmp_path / "more.csv"),
    )
    assert examples.x.tolist() == [[1], [2], [12], [3]]
    assert [examples.labels[index] for index in examples.y] == ["02", "1", "02", "2"]
    assert examples.task is not None
    assert [examples.tasks[index] for index in examples.task] == ["007", "7", "007", "7"]


def test_labels_with_a_fraction_are_real_targets(table: Callable[[str], Path]) -> None:
    examples = read(table("a,target\n1,0.5\n2,1\n"), label=None, tasks_by=None)
    assert examples.labels == ()
    assert examples.y.tolist() == [[0.5], [1.0]]
    assert examples.task is None


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators(separator: str, table: Callable[[str], Path]) -> None:
    assert torch.equal(read(table(GOOD.replace(",", separator))).x, read(table(GOOD)).x)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("", {}, r"plants\.csv has no rows"),
    ("a,kind,season\n", {}, "has no rows"),
    ("1,2,3\n4,5,6\n", {}, "has no header: its first line holds numbers"),
    ("a,kind,season\n1,x,s\n", {"label": "a, kind"}, r"names 2 columns, .* one target: .*by a two-dimensional y"),
    ("a,kind,season\n1,x,s\n", {"label": "a,rent"}, "no column 'a,rent'"),
    ("a,a,kind,season\n1,2,x,s\n", {}, "two columns called 'a'"),
    ("a,,kind,season\n1,2,x,s\n", {}, "a column without a name"),
    ("a,kind,season\n1,x,s\n2,y\n", {}, r"plants\.csv, line 3 has 2 cells, the header 3"),
    ("a,kind,season\n1,x,s\n2,,s\n", {}, r"line 3 has no label in column 'kind'"),
    ("a,kind,season\n1,1.5,s\n2,,s\n", {}, r"line 3 has no label in column 'kind'"),
    ("a,kind,season\n1,x,s\n2,y,\n", {}, r"line 3 has no task"),
    ("a,kind,season\n1,x,s\n,y,s\n", {}, r"line 3: column 'a' is missing a value; .*data.missing=drop"),
    ("a,kind,season\n1,x,s\nnan,y,s\n", {}, r"line 3: column 'a' is missing"),
    ("a,kind,season\n1,x,s\ninf,y,s\n", {}, r"line 3: column 'a' has an infinite value"),
    (
        "a,kind,season\n1,x,s\n2,y,s\n3,y,s\nlots,y,s\n",
        {},
        r"line 5: the cell 'lots' in column 'a' is not a number, but most others are",
    ),
    (
        "a,kind,season\n1,0.5,s\n2,1.5,s\n3,2,s\n4,lots,s\n",
        {},
        r"line 5: the cell 'lots' in column 'kind' is not a number",
    ),
    (
        "a;kind;season\n1,234;x;s\n2,345;y;s\n3;y;s\n",
        {},
        r"line 2: the cell '1,234' in column 'a' has a comma, .*data.decimal=comma or data.decimal=point",
    ),
    ("a;kind;season\n0,5;x;s\n1.5;y;s\nmany;y;s\n", {}, r"line 4: the cell 'many' in column 'a' is not a number"),
    (
        "when,kind,season\n01/02/2024,x,s\n03/02/2024,y,s\n",
        {},
        r"line 2: the cell '01/02/2024' in column 'when' may begin with the day or the month; .*data.dates=day-first",
    ),
    (
        "a,kind,season\n1,x,s\n1e300,y,s\n",
        {},
        r"line 3: column 'a' has the value 1e\+300, which is too large \(beyond 1e\+18\)",
    ),
    ("a,kind,season\n,x,s\n,y,s\n", {"missing": "fill"}, "column 'a' is empty"),
    ("a,kind,season\n,x,s\n,y,s\n", {"missing": "drop"}, "every row has a missing value"),
    ("kind,season\nx,s\ny,s\n", {}, "no columns left for the inputs besides 'kind', 'season'"),
    (GOOD, {"label": "sort"}, r"no column 'sort' \(--label names it\); it has 'a', 'colour'"),
    (GOOD, {"label": None}, "no column called label, target, class or y; name the one to predict with --label"),
    (GOOD, {"tasks_by": "month"}, r"no column 'month' \(--tasks-by names it; to split by classes write classes:2\)"),
    (GOOD, {"ignore": ["id"]}, r"no column 'id' \(--ignore"),
    (GOOD, {"split_by": "part"}, r"no column 'part' \(--split-by"),
    (GOOD, {"split_by": "colour"}, r"line 2: column 'colour' says 'red'; it must say train or test"),
    (
        "name,kind,season\n" + "".join(f"n{i},x,s\n" for i in range(60)),
        {},
        "'name' has 60 different values .*--ignore name",
    ),
]


@pytest.mark.parametrize(
    ("text", "settings", "message"), BAD, ids=[f"{message[:30]}-{index}" for index, (_, _, message) in enumerate(BAD)]
)
def test_a_bad_table_names_file_and_row(
    text: str, settings: dict[str, Any], message: str, table: Callable[[str], Path]
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(table(text), **settings)
    assert "\n" not in str(caught.value)


NUMBERED = "a,kind,season,id\n" + "".join(
    f"{row},{kind},{season},{row}\n" for row, (kind, season) in enumerate(zip("123x", "567y", strict=True))
)


def test_labels_tasks_and_ignored_columns_may_be_mostly_numbers(table: Callable[[str], Path]) -> None:
    examples = read(table(NUMBERED.replace("y,3", "y,3b")), ignore=["id"])
    assert examples.labels == ("1", "2", "3", "x")
    assert examples.tasks == ("5", "6", "7", "y")
    assert examples.x.tolist() == [[0], [1], [2], [3]]


def test_a_test_file_may_lack_the_one_label_that_is_not_a_number(table: Callable[[str], Path], tmp_path: Path) -> None:
    other = tmp_path / "test.csv"
    other.write_text(NUMBERED.rpartition("3,x")[0], encoding="utf-8")
    examples = read(table(NUMBERED), test_path=str(other), ignore=["id"])
    assert examples.labels == ("1", "2", "3", "x")
    assert examples.y.tolist() == [0, 1, 2, 3, 0, 1, 2]
    other.write_text(NUMBERED.replace("3,x", "many,x"), encoding="utf-8")
    with pytest.raises(DataError, match=r"test\.csv, line 5: the cell 'many' in column 'a' is not a number"):
        read(table(NUMBERED), test_path=str(other), ignore=["id"])


def test_extensions_may_be_upper_case(table: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "PLANTS.CSV").write_text(GOOD, encoding="utf-8")
    assert torch.equal(read(tmp_path / "PLANTS.CSV").x, read(table(GOOD)).x)


@pytest.mark.parametrize(
    ("encoding", "given", "note"),
    [
        ("utf-8", None, None),
        ("utf-8-sig", None, None),
        ("utf-16", None, "read as UTF-16"),
        ("cp1252", None, r"read as Windows-1252 (Latin-1)"),
        ("cp1250", "cp1250", None),
    ],
)
def test_encodings_are_detected_or_given(encoding: str, given: str | None, note: str | None, tmp_path: Path) -> None:
    word = "žlutý" if given else "grün €"
    (tmp_path / "plants.csv").write_bytes(f"a,kind,season\n1,{word},s\n".encode(encoding))
    examples = read(tmp_path / "plants.csv", encoding=given)
    assert examples.labels == (word,)
    assert [note in text for text in examples.notes] == ([True] if note else [])


def test_what_is_not_text_in_any_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plants.csv").write_bytes(b"PK\x03\x04\x00\x00")
    with pytest.raises(DataError, match=r"plants\.csv is not text \(byte 4 is zero\)"):
        read(tmp_path / "plants.csv")
    (tmp_path / "plants.csv").write_bytes(GOOD.encode())
    with pytest.raises(DataError, match="encoding 'klingon' is unknown"):
        read(tmp_path / "plants.csv", encoding="klingon")


@pytest.mark.parametrize(
    ("cells", "settings", "numbers", "decimal"),
    [
        (["0,5", "2", "-1,25"], {}, [0.5, 2, -1.25], "comma"),
        (["1.234,5", "1.234", "7"], {}, [1234.5, 1234, 7], "comma"),
        (["1,234.5", "1,234,567", "7"], {}, [1234.5, 1234567, 7], "point"),
        (["1,234", "2"], {"decimal": "comma"}, [1.234, 2], "comma"),
        (["1,234", "2"], {"decimal": "point"}, [1234, 2], "point"),
        (["1.234", "2"], {}, [1.234, 2], None),
    ],
)
def test_decimal_commas(
    cells: list[str],
    settings: dict[str, Any],
    numbers: list[float],
    decimal: str | None,
    table: Callable[[str], Path],
) -> None:
    examples = read(table("a;kind;season\n" + "".join(f"{cell};x;s\n" for cell in cells)), **settings)
    assert examples.x[:, 0].tolist() == pytest.approx(numbers)
    assert examples.inputs.get("decimal") == decimal
    assert [decimal == "comma", decimal == "point"] == [
        any(text in note for note in examples.notes) for text in ("decimal commas: a", "commas between thousands: a")
    ]


def test_a_column_with_certain_commas_decides_for_the_others(table: Callable[[str], Path]) -> None:
    examples = read(table("a;b;kind;season\n1,234;0,5;x;s\n2;1;y;s\n"))
    assert examples.x.tolist() == [[pytest.approx(1.234), 0.5], [2, 1]]


def test_labels_with_decimal_commas_are_real_targets(table: Callable[[str], Path]) -> None:
    examples = read(table("a;kind;season\n1;0,5;s\n2;1,5;s\n"))
    assert (examples.labels, examples.y.tolist()) == ((), [[0.5], [1.5]])


def test_booleans_as_text_are_one_input_and_labels_keep_their_words(table: Callable[[str], Path]) -> None:
    examples = read(table("a,kind,season\nTRUE,true,s\nfalse,false,s\n"))
    assert examples.x.tolist() == [[1], [0]]
    assert examples.labels == ("false", "true")


def test_dates_become_days_and_times_of_year(table: Callable[[str], Path], tmp_path: Path) -> None:
    import datetime

    examples = read(table("when,kind,season\n2000-01-01,x,s\n2000-01-03,y,s\n2001-01-01,y,s\n"))
    assert examples.inputs["columns"] == [{"name": "when", "date": ["days", "year", "week"]}]
    assert any("dates as numbers: when (days, time of year, weekday)" in note for note in examples.notes)
    assert examples.x[:, 0].tolist() == [0, 2, 366]
    assert examples.x[2, 1:].tolist() == pytest.approx([0, 1, 0, 1])  # a new year, on a Monday
    dates = [datetime.date(2000, 1, 1), datetime.date(2000, 1, 3), datetime.date(2001, 1, 1)]
    same = write_parquet(tmp_path / "t.parquet", when=dates, kind=["x", "y", "y"], season=["s"] * 3)
    assert torch.equal(read(same).x, examples.x)
    months = read(table("when,kind,season\nJan 2000,x,s\n2000Q2,y,s\n"))
    assert months.inputs["columns"][0]["date"] == ["days", "year"]
    assert months.x[:, 0].tolist() == [0, 91]
    times = read(table("when,kind,season\n2000-01-02 06:00,x,s\n2000-01-02T12:00:00Z,y,s\n"))
    assert times.x[:, 0].tolist() == [1.25, 1.5]
    assert times.x[:, 5:].tolist() == [pytest.approx([1, 0], abs=1e-6), pytest.approx([0, -1], abs=1e-6)]


@pytest.mark.parametrize(
    ("cells", "settings", "days"),
    [
        (["31.01.2000", "01.02.2000"], {}, [30, 31]),
        (["31/01/2000", "01/02/2000"], {}, [30, 31]),
        (["01/31/2000", "02/01/2000"], {}, [30, 31]),
        (["02/01/2000", "03/01/2000"], {"dates": "day-first"}, [1, 2]),
        (["02/01/2000", "03/01/2000"], {"dates": "month-first"}, [31, 60]),
    ],
)
def test_the_order_of_day_and_month(
    cells: list[str], settings: dict[str, Any], days: list[int], table: Callable[[str], Path]
) -> None:
    examples = read(table("when,kind,season\n" + "".join(f"{cell},x,s\n" for cell in cells)), **settings)
    assert examples.x[:, 0].tolist() == days


def test_missing_values_can_be_dropped_or_filled(table: Callable[[str], Path]) -> None:
    path = table(GOOD.replace("2.5,blue", ",blue").replace("4,red", "4,"))
    dropped = read(path, missing="drop")
    assert dropped.x[:, 0].tolist() == [1, 3]
    assert dropped.where(1).endswith("line 4")
    assert "2 of 4 rows" in dropped.notes[0]
    filled = read(path, missing="fill")
    assert filled.x[1].isnan().tolist() == [True, False, False]
    assert filled.x[3].tolist() == [4, 0, 0]  # no value: none of the inputs


def test_a_column_tells_training_from_test(table: Callable[[str], Path]) -> None:
    examples = read(table("a,kind,season,part\n1,x,s,train\n2,y,s,Test\n"), split_by="part")
    assert examples.test is not None
    assert examples.test.tolist() == [False, True]
    assert examples.x.shape == (2, 1)


def test_a_test_file_has_the_same_columns(table: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("season,a,colour,kind\nspring,9,green,y\n")
    examples = read(table(GOOD), test_path=str(tmp_path / "test.csv"))
    assert examples.test is not None
    assert examples.test.tolist() == [False] * 4 + [True]
    assert examples.x[4].tolist() == [9, 0, 1, 0]  # blue, green, red
    assert examples.where(4).endswith("test.csv, line 2")
    (tmp_path / "test.csv").write_text("season,a,kind\nspring,9,y\n")
    with pytest.raises(DataError, match=r"test\.csv has no column 'colour'"):
        read(table(GOOD), test_path=str(tmp_path / "test.csv"))
    (tmp_path / "test.csv").write_text("season,a,colour,kind\nspring,big,red,y\n")
    with pytest.raises(DataError, match=r"column 'a' holds number in .*plants\.csv but text in .*test\.csv"):
        read(table(GOOD), test_path=str(tmp_path / "test.csv"))


# Parquet


def write_parquet(path: Path, **columns: Any) -> Path:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_parquet_holds_the_same_as_csv(table: Callable[[str], Path], tmp_path: Path) -> None:
    path = write_parquet(
        tmp_path / "plants.parquet",
        a=[1, 2.5, 3, 4],
        colour=["red", "blue", "red", "red"],
        kind=["x", "y", "x", "z"],
        season=["spring", "spring", "autumn", "autumn"],
    )
    examples, same = read(path), read(table(GOOD))
    assert torch.equal(examples.x, same.x)
    assert torch.equal(examples.y, same.y)
    assert (examples.labels, examples.tasks, examples.inputs) == (same.labels, same.tasks, same.inputs)
    assert examples.where(1).endswith("plants.parquet, row 1")


def test_booleans_are_labels_and_inputs(tmp_path: Path) -> None:
    examples = read(write_parquet(tmp_path / "t.parquet", a=[True, False], kind=[False, True], season=[1, 2]))
    assert examples.x.tolist() == [[1], [0]]
    assert examples.labels == (False, True)
    assert examples.tasks == ("1", "2")


def test_columns_of_other_types_are_refused_by_name(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", a=[1, 2], parts=[[1], [2]], kind=["x", "y"], season=["s", "s"])
    with pytest.raises(
        DataError, match="column 'parts' holds neither numbers, dates nor text; leave it out with --ignore parts"
    ):
        read(path)
    assert read(path, ignore="parts").x.shape == (2, 1)


def test_plain_numbers_in_a_text_column_of_parquet_stay_categories(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", zone=["10", "20"], kind=["x", "y"], season=["s", "s"])
    assert read(path).inputs["columns"] == [{"name": "zone", "values": ["10", "20"]}]


def test_a_corrupt_parquet_file_is_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", a=[1, 2], kind=["x", "y"], season=["s", "s"])
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError, match=r"cannot read .*t\.parquet .*copy it again"):
        read(path)


def test_a_folder_of_tables_has_train_and_test(tmp_path: Path) -> None:
    for split, size in (("train", 3), ("test", 2)):
        write_parquet(tmp_path / f"{split}-0.parquet", a=list(range(size)), kind=["x"] * size, season=["s"] * size)
    examples = read(tmp_path)
    assert examples.test is not None
    assert examples.test.tolist() == [False] * 3 + [True] * 2
    (tmp_path / "more.csv").write_text(GOOD)
    with pytest.raises(DataError, match="tables in different formats"):
        read(tmp_path)


def test_a_table_of_images(tmp_path: Path, png: Callable[[torch.Tensor], dict[str, object]]) -> None:
    pixels = torch.arange(2 * 3 * 4, dtype=torch.uint8).view(2, 3, 4)
    path = write_parquet(tmp_path / "t.parquet", image=[png(image) for image in pixels], label=["x", "y"])
    examples = read(path, label=None, tasks_by=None)
    assert torch.equal(examples.x, pixels.unsqueeze(1))
    assert examples.inputs == {"kind": "images", "mode": "L", "size": [3, 4], "resize": False, "label": "label"}
    broken = write_parquet(
        tmp_path / "b.parquet", image=[png(pixels[0]), {"bytes": b"nothing", "path": None}], label=["x", "y"]
    )
    with pytest.raises(DataError, match=r"b\.parquet, row 1 cannot be read as an image"):
        read(broken, label=None, tasks_by=None)


def test_what_is_not_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, message in (("notes.doc", "is not in a known format"), ("cat.png", "is one image")):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(DataError, match=message):
            read(tmp_path / name)
    with pytest.raises(DataError, match=r"owner/name does not exist; .*write hf:owner/name"):
        read(Path("owner/name"))


def test_a_shared_folder_is_searched(
    table: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(GOOD)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("METAREPLAY_DATA", str(tmp_path))
    assert len(read(Path("plants.csv")).x) == 4


def test_float64_is_read_exactly_before_rounding(table: Callable[[str], Path]) -> None:
    examples = read(table("a,kind,season\n0.1,x,s\n123456.789,y,s\n"))
    assert np.array_equal(examples.x[:, 0].numpy(), np.array([0.1, 123456.789], dtype=np.float32))
