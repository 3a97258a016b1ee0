"""Measured figures as small JSON files: what was measured, by which command, and what came out."""

from metareplay.report.records.base import UNKNOWN, Figure, Measured, Record, Row
from metareplay.report.records.runs import record_of, record_runs
from metareplay.report.records.store import place_of, read_record, read_records, write_record

__all__ = [
    "UNKNOWN",
    "Figure",
    "Measured",
    "Record",
    "Row",
    "place_of",
    "read_record",
    "read_records",
    "record_of",
    "record_runs",
    "write_record",
]
