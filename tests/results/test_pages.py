"""What stands between markers in the documents is what the records say."""

from pathlib import Path

import pytest

from metareplay.report.records import Figure, Record, Row
from results.pages import ROOT, generated, pages
from results.tables import definitions
from results.values import all_records

PAGES = pages()


def test_the_main_pages_are_made_from_records() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in PAGES}
    assert {"docs/results.md", "docs/performance.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_are_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert generated(text, all_records(), definitions()) == text, "run `make results`"


def test_every_table_is_shown_somewhere() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in definitions() if f"<!-- table: {name} -->" not in text] == []


def record(**figures: float) -> Record:
    rows = [
        Row(labels={"way": way}, figures={key: Figure(value=value + place) for key, value in figures.items()})
        for place, way in enumerate(("plain", "other"))
    ]
    return Record(what="w", command="c", seeds=[0], rows=rows)


def test_figures_in_the_text_are_filled_in() -> None:
    text = "It is <!--fig:a/b[way=other]|ent|.1f-->?<!--/--> %."
    filled = "It is <!--fig:a/b[way=other]|ent|.1f-->73.0<!--/--> %."
    assert generated(text, {"a/b": record(ent=72)}, {}) == filled
    assert generated(filled, {"a/b": record(ent=72)}, {}) == filled


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<!--fig:a/c|ent|.1f-->1<!--/-->", "no record is named a/c"),
        ("<!--fig:a/b|ent|.1f-->1<!--/-->", "names 2 rows"),
        ("<!--fig:a/b[way=plain]|conf|.1f-->1<!--/-->", "has no figure conf"),
        ("<!-- table: gone -->\n<!-- end -->", "there is no table gone"),
    ],
)
def test_what_no_record_has_is_an_error(text: str, words: str) -> None:
    with pytest.raises(LookupError, match=words):
        generated(text, {"a/b": record(ent=72)}, {})
