"""Tables on narrow terminals: nothing is cut off."""

import io

import pytest
from rich.console import Console

from metareplay.cli.narrow_tables import print_columns

HEADERS = ["", "task", "classes", "examples", "date", "accuracy", "now", "stored", "features moved", "not followed"]
ROWS = [
    ["0", "january", "coffee, tea", "200", "2026-01-31", "100.0 %", "98.5 %", "12 KiB", "> 999 %", "0.1 %"],
    ["1", r"\[x] february", "juice, water", "200", "2026-02-28", "100.0 %", "98.5 %", "12 KiB", "1.0 %", "0.1 %"],
]


def printed(width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    print_columns(console, HEADERS, ROWS, first=2, whole=("task", "date"))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_no_word_is_cut(width: int) -> None:
    lines = printed(width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    for text in (*HEADERS, *(cell for row in ROWS for cell in row)):
        assert all(word in words for word in text.replace("\\", "").split())


def test_what_fits_is_one_table_with_a_line_for_each_row() -> None:
    assert len(printed(200)) == 1 + len(ROWS)
    assert "[x] february" in printed(200)[2]
