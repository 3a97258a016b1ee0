"""Large CSV files: read in pieces, with the same result as at once."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from metareplay.data import detecting, reading
from metareplay.data.base import Examples
from metareplay.data.inputs import read_inputs
from metareplay.data.labels import Labels, Request
from metareplay.data.readers import csv_pieces
from metareplay.data.settings import DataSettings
from metareplay.errors import DataError

ROWS = 40


def both(path: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> list[Examples | str]:
    """The examples, or what is wrong: read at once, and in pieces of a few rows."""
    answers: list[Examples | str] = []
    monkeypatch.setattr(csv_pieces, "CELLS", 12)
    for large in (10**9, 0):
        monkeypatch.setattr(reading, "LARGE", large)
        try:
            answers.append(reading.read_examples(DataSettings(path=str(path), **settings)))  # type: ignore[arg-type]
        except DataError as error:
            answers.append(str(error))
    return answers


def write(path: Path, **columns: Sequence[object]) -> Path:
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([";".join(columns), *(";".join(map(str, row)) for row in rows)]) + "\n")
    return path


def cells(*parts: tuple[int, str]) -> list[str]:
    """Cells of a column: so many of each pattern, which may hold the row's number."""
    return [text.format(row) for count, text in parts for row in range(count)]


COLUMNS = {
    "numbers": cells((40, "{0}.5")),
    "codes late": cells((39, "{0}"), (1, "007")),
    "a typo late": cells((38, "{0}"), (1, "1O"), (1, "7")),
    "words late": cells((20, "7"), (20, "red")),
    "truth": cells((20, "true"), (20, "False")),
    "truth with gaps": cells((39, "true"), (1, "")),
    "truth, then not": cells((30, "true"), (10, "maybe")),
    "decimal commas late": cells((30, "{0}"), (10, "{0},25")),
    "commas that may be either": cells((40, "{0},125")),
    "thousands": cells((39, "1,2{0:02}"), (1, "1,234,567")),
    "days": cells((28, "2024-01-{0:02}"), (12, "2024-0{0}-05")),
    "days first, seen late": cells((30, "01/02/2024"), (10, "31/01/2024")),
    "days or months": cells((40, "01/02/2024")),
    "times late": cells((39, "2024-01-01"), (1, "2024-01-01 12:30")),
    "dates, then numbers": cells((30, "2024-01-01"), (10, "{0}")),
    "many dates, then a word": cells((28, "2024-01-{0:02}"), (11, "2024-02-{0:02}"), (1, "soon")),
    "numbers, then dates": cells((30, "{0}"), (10, "2024-01-01")),
    "all missing": cells((40, "NA")),
    "missing late": cells((39, "{0}"), (1, "")),
    "categories with gaps": cells((20, "red"), (1, ""), (19, "blue")),
    "names": cells((40, "name {0}")),
    "infinite late": cells((39, "{0}"), (1, "inf")),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("missing", ["refuse", "drop"])
def test_the_same_in_pieces(name: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detecting, "MOST_SEEN", 5)
    labels = [f"class {row % 3}" for row in range(ROWS)]
    path = write(tmp_path / "d.csv", x=range(ROWS), column=COLUMNS[name], label=labels)
    whole, pieces = both(path, monkeypatch, missing=missing)
    assert_same(whole, pieces)


@pytest.mark.parametrize("name", COLUMNS)
def test_labels_and_tasks_are_the_same_in_pieces(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "d.csv", x=range(ROWS), column=COLUMNS[name], other=[row % 2 for row in range(ROWS)])
    assert_same(*both(path, monkeypatch, label="column"))
    assert_same(*both(path, monkeypatch, label="other", tasks_by="column"))
    assert_same(*both(path, monkeypatch, label="other", ignore=("column",)))


def assert_same(whole: Examples | str, pieces: Examples | str) -> None:
    if isinstance(whole, str) or isinstance(pieces, str):
        assert pieces == whole
        return
    assert np.array_equal(pieces.x.numpy(), whole.x.numpy(), equal_nan=True)
    assert np.array_equal(pieces.y.numpy(), whole.y.numpy())
    assert (pieces.labels, pieces.tasks, pieces.inputs, pieces.notes) == (
        whole.labels,
        whole.tasks,
        whole.inputs,
        whole.notes,
    )
    assert [pieces.where(row) for row in range(len(pieces.x))] == [whole.where(row) for row in range(len(whole.x))]


def test_lines_are_counted_across_cells_with_line_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f'{row},"a\nb",{row % 2}' if row % 7 == 3 else f"{row},c,{row % 2}" for row in range(ROWS)]
    (tmp_path / "d.csv").write_text("\n".join(["x,text,label", "", *rows, "5,c"]))
    whole, pieces = both(tmp_path / "d.csv", monkeypatch)
    assert pieces == whole
    assert f"line {3 + ROWS + 6} has 2 cells, the header 3" in str(pieces)
    (tmp_path / "d.csv").write_text("\n".join(["x,text,label", "", *rows]))
    assert_same(*both(tmp_path / "d.csv", monkeypatch))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"])
@pytest.mark.parametrize("block", [16, 17, 1 << 20])
def test_encodings_are_found_in_blocks(
    encoding: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_pieces, "BLOCK", block)
    rows = "".join(f"{row},{'é' if row > 20 else 'e'},{'ß' if row % 2 else 's'}\n" for row in range(ROWS))
    odd = b"9,\x81,s\n" if encoding == "latin-1" else b""
    (tmp_path / "d.csv").write_bytes(f"x,text,label\n{rows}".encode(encoding) + odd)
    assert_same(*both(tmp_path / "d.csv", monkeypatch))
    assert_same(*both(tmp_path / "d.csv", monkeypatch, encoding="utf-8"))
    assert_same(*both(tmp_path / "d.csv", monkeypatch, encoding="klingon"))
    (tmp_path / "d.csv").write_bytes(f"x,text,label\n{rows}".encode(encoding) + b"\0")
    assert_same(*both(tmp_path / "d.csv", monkeypatch))


def test_large_inputs_of_a_model_are_the_same_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels, colours = cells((20, "a"), (20, "b")), cells((39, "red"), (1, "blue"))
    path = write(tmp_path / "d.csv", x=cells((30, "{0}"), (10, "{0},5")), colour=colours, label=labels)
    known = {"kind": "table", "columns": [{"name": "x"}, {"name": "colour", "values": ["red"]}], "label": "label"}
    monkeypatch.setattr(csv_pieces, "CELLS", 12)
    answers = []
    for large in (10**9, 0):
        monkeypatch.setattr(reading, "LARGE", large)
        answers.append(read_inputs(path, known, (2,), Request(labels=True)))
    whole, pieces = answers
    assert np.array_equal(whole.x, pieces.x)
    assert whole.labels == pieces.labels == Labels(labels, "label")
    assert whole.warnings == pieces.warnings
    assert "1 row holds a value not in the training data ('blue'; first:" in whole.warnings[0]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process's memory is measured in kilobytes")
def test_memory_is_that_of_the_decoded_data(tmp_path: Path) -> None:
    rows = "".join(f"{','.join([str(row % 997)] * 30)},{row % 2}\n" for row in range(60_000))
    (tmp_path / "d.csv").write_text(f"{','.join(f'x{i}' for i in range(30))},label\n{rows}")
    code = """
import resource, sys
import metareplay.data.reading as reading
from metareplay.data.settings import DataSettings
reading.LARGE = 0
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, examples = peak(), reading.read_examples(DataSettings(path=sys.argv[1]))
print((peak() - before) / (examples.x.numel() * 4 + examples.y.numel() * 8))
"""
    environment = {**os.environ, "METAREPLAY_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "d.csv")],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) < 4  # a small file: 3 MB of fixed costs count; read at once, it would be above 40
