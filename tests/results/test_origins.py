"""The page of results says how many records have a revision, and how many were made from sentences."""

from metareplay.report.records import Figure, Record, Row
from results.origins import from_sentences, has_revision, origins
from results.values import all_records


def record(revision: str | None = None, of_row: str | None = None, **labels: str) -> Record:
    row = Row(labels=labels, revision=of_row, figures={"ent": Figure(value=70.0)})
    known = {} if revision is None else {"revision": revision}
    return Record(what="w", command="c", seeds=[0], rows=[row], **known)


def test_records_are_counted_by_what_is_known_of_them() -> None:
    records = {
        "a": record("4f96bd61"),
        "b": record(of_row="4f96bd61"),
        "c": record(),
        "notes/d": record(said="It is 70.0."),
    }
    assert [has_revision(one) for one in records.values()] == [True, True, False, False]
    assert [from_sentences(one) for one in records.values()] == [False, False, False, True]
    assert origins(records).startswith("Of 4 records, 2 name the revision that was measured. For the other 2 ")
    assert "1 (`results/notes`)" in origins(records)


def test_records_of_sentences_are_in_one_folder() -> None:
    assert {name for name, one in all_records().items() if from_sentences(one)} == {
        name for name in all_records() if name.startswith("notes/")
    }
