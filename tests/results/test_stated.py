"""A page states no figure that no record has; and the search for such figures finds them."""

import re
from pathlib import Path

import pytest

from metareplay.report.records import Figure, Record, Row
from results.pages import ROOT, pages
from results.stated import checked_pages, exempt_fragments, stated_in, unknown_figures
from results.tables import Table, definitions
from results.values import all_records

PAGES = checked_pages()
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_figure_is_in_a_record(page: Path) -> None:
    name, text = page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
    unknown = unknown_figures(text, all_records(), definitions(), exempt_fragments().get(name, []))
    advice = "measure it with --record, or say in results/not_measured.yaml why it is not a measurement"
    told = [f"{name}:{figure.line}: {figure.text} in {figure.sentence[:100]!r}" for figure in unknown]
    assert not told, "\n".join([f"no record of the section has these figures; {advice}", *told])


def test_the_main_pages_are_checked() -> None:
    assert {"README.md", "docs/results.md", "docs/performance.md", "docs/paper_map.md"} <= set(NAMES)
    for folder in ("tutorials", "appendix"):
        assert all(path in PAGES for path in (ROOT / "docs" / folder).glob("*.md"))


def test_exempt_fragments_stand_in_their_pages() -> None:
    gone = {
        f"{page}: {fragment}"
        for page, fragments in exempt_fragments().items()
        for fragment in fragments
        if fragment not in " ".join((ROOT / page).read_text(encoding="utf-8").split())
    }
    assert gone == set()


def test_no_line_begins_with_a_marker() -> None:
    """A comment that begins a line would end the paragraph."""
    pattern = re.compile(r"^\s*<!--(?:fig|row):", re.MULTILINE)
    assert [page.name for page in pages() if pattern.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("It is right for 97 and 98.5 % in 3 tasks.", ["97", "98.5"]),
        ("13 to 42 points, 1,650 MiB, 12 seconds, 5 steps.", ["13", "42", "1,650", "12"]),
        ("An error of 0.012, version 0.1.0, 28 x 28, in 2021, MLP-400,400 and 1e-4.", ["0.012"]),
        ("`97.1 %` is code, [97.1 %](a-97.2) a link, ![97.4 %](b) a picture, <!-- 97.3 % --> a comment.", ["97.1"]),
        ("# 97.1 %\n\n```text\n97.2 %\n```\n", []),
        ("| a | 3 |\n|---|---|\n| 12 | x 4 |\n", ["3", "12", "4"]),
        ("| setting | default |\n|---|---|\n| 12 | 0.4 |\n\nIt is 0.5.", ["0.5"]),
        ("| limit | default |\n|---|---|\n| 3 | 0.4 |\n\n| name | what it is |\n|---|---|\n| a | 7 x 7 |\n", []),
        ("| name | ours |\n|---|---|\n| a | 7 |\n", ["7"]),
        ("<!-- table: a -->\n| 97.1 |\n<!-- end --> <!--fig:a::b::.1f-->97.2<!--/--> %, 97.3 %", ["97.3"]),
        ("<!-- figures: a -->\n```text\nright 97.2\n```\n", ["97.2"]),
        ("<!-- no-run -->\n```text\nright 97.2\n```\n", []),
        ("Three errors fell, 97.5 % are right.", ["97.5"]),
    ],
)
def test_figures_are_found(text: str, figures: list[str]) -> None:
    assert [figure.text for figure in stated_in(text)] == figures


def record(**values: float) -> Record:
    rows = [Row(figures={key: Figure(value=value, error=0.31) for key, value in values.items()})]
    return Record(what="w", command="c", seeds=[0], rows=rows)


def unknown(text: str, *exempt: str) -> list[str]:
    records = {"a/x": record(ent=72.57), "b/y": record(ent=81.26)}
    tables = {"t": Table.model_validate({"records": ["a/x"], "columns": [{"title": "e", "cell": "{ent:.1f}"}]})}
    return [figure.text for figure in unknown_figures(text, records, tables, exempt)]


TABLE = "<!-- table: t -->\n<!-- end -->\n"


def test_a_figure_is_known_as_it_is_rounded_and_only_in_its_section() -> None:
    assert unknown(f"{TABLE}It is 72.6, 72.57 or 73 %, with an error of 0.31; not 72.5, 72.58 or 72 %.") == [
        "72.5",
        "72.58",
        "72",
    ]
    assert unknown(f"## One\n\n{TABLE}81.3 %\n\n## Two\n\n<!-- figures: b/* -->\n81.3 %, 72.6 %") == ["81.3", "72.6"]
    assert unknown("<!--fig:a/x::ent::.1f-->72.6<!--/--> %, that is 72.57.") == []


def test_headings_inside_of_a_table_of_records_begin_no_section() -> None:
    block = "<!-- table: t -->\n## Rows\n\n| 72.6 |\n<!-- end -->\n"
    assert unknown(f"## One\n\n{block}It is 72.57 and 71.0 %.") == ["71.0"]


def test_the_papers_figures_are_known_where_the_paper_is_spoken_of() -> None:
    assert unknown("The paper has 70.88 %. We have 70.88 %.") == ["70.88"]
    assert unknown("| method | paper |\n|---|---|\n| x | 70.88 |\n\n| method | ours |\n|---|---|\n| x | 70.88 |\n") == [
        "70.88"
    ]


def test_exempt_fragments_are_left_out() -> None:
    assert unknown("At most\n95 % are wanted, 95 % are had.", "At most 95 %") == ["95"]
