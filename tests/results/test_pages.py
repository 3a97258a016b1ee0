"""What stands between markers in the documents is what the records say."""

from pathlib import Path

import pytest

from metareplay.report.records import Figure, Record, Row
from results.pages import ROOT, base_of, generated, pages
from results.plots import IMAGES, PLOTS, THEMES, digest, drawn_from, make_plots
from results.tables import definitions
from results.values import all_records

PAGES = pages()


def test_the_main_pages_are_made_from_records() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in PAGES}
    assert {"docs/results.md", "docs/performance.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_are_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert generated(text, all_records(), definitions(), base_of(page)) == text, "run `make results`"


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
    text = "It is <!--fig:a/b[way=other]::ent::.1f-->?<!--/--> %."
    filled = "It is <!--fig:a/b[way=other]::ent::.1f-->73.0<!--/--> %."
    assert generated(text, {"a/b": record(ent=72)}, {}) == filled
    assert generated(filled, {"a/b": record(ent=72)}, {}) == filled


def test_rows_of_the_paper_are_filled_in() -> None:
    labels = {"benchmark": "split-mnist", "method": "pr-dirac", "network": "mlp-400-400", "recipe": "published"}
    records = {"a": record(ent=70).model_copy(update={"labels": labels, "rows": record(ent=70).rows[:1]})}
    text = "<!--row:split-mnist::PR-Dirac::ent::.1f-->?<!--/--> <!--row:split-mnist::PR-BbB::ent::.1f-->?<!--/-->"
    assert generated(text, records, {}).split("-->") == text.replace("?", "70.0", 1).replace("?", "not run").split(
        "-->"
    )
    with pytest.raises(LookupError, match="has no row PR-Nobody"):
        generated("<!--row:split-mnist::PR-Nobody::ent::.1f-->?<!--/-->", records, {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<!--fig:a/c::ent::.1f-->1<!--/-->", "no record is named a/c"),
        ("<!--fig:a/b::ent::.1f-->1<!--/-->", "names 2 rows"),
        ("<!--fig:a/b[way=plain]::conf::.1f-->1<!--/-->", "has no figure conf"),
        ("<!-- table: gone -->\n<!-- end -->", "there is no table gone"),
    ],
)
def test_what_no_record_has_is_an_error(text: str, words: str) -> None:
    with pytest.raises(LookupError, match=words):
        generated(text, {"a/b": record(ent=72)}, {})


def test_plots_are_drawn_from_the_records() -> None:
    records = all_records()
    old = [
        f"{name}-{kind}"
        for name, (chosen, _, _) in PLOTS.items()
        for kind in THEMES
        if drawn_from(IMAGES / f"{name}-{kind}.svg") != digest(chosen(records))
    ]
    assert old == [], "run `make results`"


def test_a_plot_is_drawn_again_when_its_figures_change(tmp_path: Path) -> None:
    records = all_records()
    chosen = {name: PLOTS[name] for name in ("steps",)}
    assert len(make_plots(records, tmp_path, chosen)) == 2
    assert make_plots(records, tmp_path, chosen) == []
    changed = records["performance/steps"]
    rows = [
        row.model_copy(update={"figures": {**row.figures, "one_core.mean": Figure(value=7)}}) for row in changed.rows
    ]
    records["performance/steps"] = changed.model_copy(update={"rows": rows})
    assert digest(PLOTS["steps"][0](records)) != drawn_from(tmp_path / "steps-dark.svg")
