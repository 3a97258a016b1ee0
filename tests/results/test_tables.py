"""Tables from records, and records from tables."""

from typing import Any

import pytest

from metareplay.report.records import Figure, Record, Row
from results.adding import add
from results.reading import rows_from
from results.tables import Table, render
from results.values import all_records, filled, lines_of


def run(method: str, values: dict[int, float], **labels: str) -> Record:
    rows = [Row(seeds=[seed], figures={"ent": Figure(value=value)}) for seed, value in values.items()]
    return Record(what=method, command=f"run {method}", labels={"method": method, **labels}, rows=rows)


def table(*columns: dict[str, Any], **more: Any) -> Table:
    return Table.model_validate({"columns": columns, "records": ["*"], **more})


def body(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")][2:]


NAME, ENT = {"title": "m", "cell": "{method}", "once": True}, {"title": "e", "cell": "{ent:.1f±}", "missing": "–"}


def test_seeds_are_put_together() -> None:
    (line,) = lines_of({"a": run("vcl", {0: 70.0, 1: 72.0, 2: 74.0})})
    assert filled("{ours}: {ent:.1f}, {ent:.2f±}, {ent:.0f*} of {seeds}", line) == (
        "ours, 3 seeds: 72.0, 72.00 ± 1.15, 70, 72, 74 of 0, 1, 2"
    )
    assert filled("{conf:.1f}", line) is None


def test_a_figure_that_some_seeds_lack_says_so() -> None:
    record = run("vcl", {0: 70.0, 1: 72.0, 2: 74.0})
    for row in record.rows[1:]:
        row.figures["conf"] = Figure(value=60.0)
    (line,) = lines_of({"a": record})
    assert filled("{ent:.0f±}; {conf:.0f±}; {conf:.0f}", line) == "72 ± 1; 60 ± 0 (2 of 3 seeds); 60"


def test_rows_keep_the_order_of_the_patterns_and_repeat_no_name() -> None:
    records = {"a/vcl": run("vcl", {0: 1.0}), "a/er": run("er", {0: 2.0}), "a/er-x": run("er", {0: 3.0}, other="x")}
    shown = render(table(NAME, ENT, records=["a/er*", "a/vcl"]), records, "../results").text
    assert body(shown) == [
        "| er | [2.0](../results/a/er.json) |",
        "|  | [3.0](../results/a/er-x.json) |",
        "| vcl | [1.0](../results/a/vcl.json) |",
    ]
    one = render(table(NAME, ENT, records=["a/vcl"]), records).text
    assert one.endswith("*Measured by `run vcl` ([record](results/a/vcl.json)).*")


def test_the_papers_figures_stand_below_ours() -> None:
    columns = [NAME, {"title": "", "cell": "{ours}"}, ENT]
    shown = render(table(*columns, paper="split-mnist"), {"a": run("pr-dirac", {0: 73.6}), "b": run("mine", {0: 1.0})})
    assert body(shown.text) == [
        "| pr-dirac | [ours, seed 0](results/a.json) | 73.6 |",
        "|  | paper | 70.9 ± 0.6 |",
        "| mine | [ours, seed 0](results/b.json) | 1.0 |",
    ]


def test_a_table_can_be_read_back() -> None:
    both = table(
        {"title": "way", "cell": "{way}", "once": True},
        {"title": "a", "cell": ["{a.x:,.1f} / {a.y:.1f}", "{a:.1f} only"], "unit": "%"},
        {"title": "c", "cell": "{c.x:.0f}, {c.y:.0f}"},
        {"title": "b of 2 cores", "cell": "{b:.2f±}", "missing": "–"},
    )
    rows = [
        Row(
            labels={"way": "one"},
            figures={
                "a.x": Figure(value=1234.5, unit="%"),
                "a.y": Figure(value=-2, unit="%"),
                "c.x": Figure(value=5),
                "c.y": Figure(value=6),
            },
        ),
        Row(labels={"way": "two"}, figures={"a": Figure(value=3, unit="%"), "b": Figure(value=0.5, error=0.25)}),
    ]
    shown = render(both, {"r": Record(what="w", command="c", rows=rows)}).text
    assert body(shown) == ["| one | 1,234.5 / -2.0 | 5, 6 | – |", "| two | 3.0 only |  | 0.50 ± 0.25 |"]
    assert rows_from(both, shown.replace("2 cores", "16 cores")) == rows


def test_a_cell_that_the_definition_does_not_know_is_refused() -> None:
    with pytest.raises(LookupError, match="'high' is not like"):
        rows_from(table(NAME, ENT), "| m | e |\n|---|---|\n| vcl | high |")
    with pytest.raises(LookupError, match="no table with the headings"):
        rows_from(table(NAME, ENT), "| m | f |\n|---|---|\n| vcl | 1.0 |")


def test_a_printed_table_is_added_with_its_command(tmp_path: Any) -> None:
    printed = "Nine cores.\n\n| method | peak resident memory, MiB |\n|---|---|\n| vcl | 700 |\n"
    path = add("memory", printed, "make bench PARTS=memory", tmp_path)
    recorded = all_records(tmp_path)["performance/memory"]
    assert path == tmp_path / "performance" / "memory.json"
    assert recorded.remark == "Nine cores."
    assert recorded.rows == [Row(labels={"method": "vcl"}, figures={"memory": Figure(value=700, unit="MiB")})]
    with pytest.raises(LookupError, match="made of several records"):
        add("split-mnist", printed, "c", tmp_path)
