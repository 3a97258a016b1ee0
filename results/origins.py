"""What is known of where the records come from, as a sentence for the page of results."""

from collections.abc import Mapping

from metareplay.report.records import UNKNOWN, Record

SAID = "said"
"""The label of a row whose figures were taken from a sentence of a page, which it holds."""


def has_revision(record: Record) -> bool:
    """Whether the revision that was measured is known, of at least one of the rows."""
    return any((row.revision or record.revision) != UNKNOWN for row in record.rows)


def from_sentences(record: Record) -> bool:
    """Whether the figures were taken from the text of a page: there a comparison of page and record proves nothing."""
    return any(SAID in row.labels for row in record.rows)


def origins(records: Mapping[str, Record]) -> str:
    """How many records have a revision, and how many were made from sentences."""
    known = sum(has_revision(record) for record in records.values())
    said = sum(from_sentences(record) for record in records.values())
    return (
        f"Of {len(records)} records, {known} name the revision that was measured. For the other {len(records) - known} "
        "it was not written down; most of them were carried over from the pages of 0.1. Of these, "
        f"{said} (`results/notes`) were taken from the very sentences of the appendix that state their figures: there "
        "the test only shows that the text has not changed since, and the measurement itself cannot be looked up."
    )
