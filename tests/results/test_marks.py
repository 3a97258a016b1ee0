"""Every row of the paper is listed, and marked as ``metareplay reproduce`` marks it."""

from metareplay.paper.tables import paper_tables
from metareplay.report.records import Figure, Record, Row
from results.marks import marked_rows, rows_of_the_paper, rows_that_fall_short


def run(method: str, budget: float = 1.0, rows: dict[str, str] | None = None, **figures: float) -> Record:
    labels = {"benchmark": "split-mnist", "method": method, "network": "mlp-400-400", "recipe": "published"}
    row = Row(labels=rows or {}, figures={key: Figure(value=value) for key, value in figures.items()})
    return Record(what="w", command="c", labels=labels, seeds=[0], budget=budget, rows=[row])


def mark(records: dict[str, Record], row: str) -> str:
    rows = [one for one in marked_rows(records) if one.table.name == "split-mnist" and one.row.paper == row]
    assert len(rows) == 1
    return rows[0].mark


def test_every_row_of_every_table_is_there() -> None:
    rows = list(marked_rows({}))
    assert len(rows) == sum(len(table.rows) for table in paper_tables().values())
    assert {row.mark for row in rows} == {"not run", "cited"}


def test_rows_are_marked() -> None:
    assert mark({"a": run("pr-dirac", ent=73.6, tgiven_final=99.7)}, "PR-Dirac") == "within"
    assert mark({"a": run("pr-dirac", ent=53.6, tgiven_final=99.7)}, "PR-Dirac") == "**short**: ent"
    assert mark({"a": run("pr-dirac", budget=0.5, ent=53.6)}, "PR-Dirac") == "not comparable: shorter"
    assert mark({"a": run("pr-dirac", rows={"variant": "old"}, ent=73.6)}, "PR-Dirac") == "within (old)"
    assert mark({"a": run("pr-dirac", rows={"other": "tried"}, ent=73.6)}, "PR-Dirac") == "not run"


def test_the_closest_measurement_counts() -> None:
    records = {
        "a": run("pr-dirac", rows={"variant": "old"}, ent=73.6),
        "b": run("pr-dirac", ent=50.0),
        "c": run("pr-dirac", budget=0.1, ent=60.0),
    }
    assert mark(records, "PR-Dirac") == "**short**: ent"
    changed = run("pr-dirac", ent=50.0)
    changed = changed.model_copy(update={"labels": {**changed.labels, "settings": "heads=single"}})
    assert mark({"a": changed}, "PR-Dirac") == "not run"


def test_the_text_counts_rows_and_names_those_that_fall_short() -> None:
    records = {"a": run("pr-dirac", ent=73.6), "b": run("pr-radial", ent=52.3)}
    text = rows_of_the_paper(records)
    assert "2 were measured at the published length, and 1 of" in text
    own = len(paper_tables()["split-mnist"].own_rows)
    assert f"| `split-mnist`: SplitMNIST, MLP-400,400 | {own} | 2 | 1 |" in text
    assert "| PR-Radial | **short**: ent |  | 99.64 ± 0.01 | 52.30 | 66.01 ± 0.92 | 1 |" in text
    assert rows_that_fall_short(records).splitlines()[2:] == [
        "| `split-mnist` | PR-Radial | TInfer-Final ent | 52.30 | 66.01 ± 0.92 | 1 |  |"
    ]
