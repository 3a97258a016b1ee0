"""Add a measurement that was printed as a Markdown table to the records.

    python -m benchmarks.drift --data-dir FOLDER | python -m results add drift --command "python -m ..."

The table's definition (tables/*.yaml) says which record it is, and what its cells mean.
"""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import torch

from metareplay.experiments.revision import revision
from metareplay.report.records import UNKNOWN, Record, read_record, write_record
from results.reading import rows_from
from results.tables import definitions
from results.values import FOLDER


def add(name: str, markdown: str, command: str, folder: Path = FOLDER, seeds: tuple[int, ...] = ()) -> Path:
    """Record a measured table; it replaces what was measured of it before."""
    tables = definitions()
    if name not in tables:
        raise LookupError(f"there is no table {name}; define it in results/tables/")
    if len(tables[name].records) != 1 or "*" in tables[name].records[0]:
        raise LookupError(f"the table {name} is made of several records; use --record of metareplay run or reproduce")
    (record,) = tables[name].records
    path = folder / f"{record}.json"
    before = read_record(path) if path.exists() else None
    words = " ".join(line.strip() for line in markdown.splitlines() if line.strip() and not line.startswith("|"))
    measured = Record(
        what=name if before is None else before.what,
        labels={} if before is None else before.labels,
        command=command,
        seeds=list(seeds) or ([] if before is None else before.seeds),
        revision=revision() or UNKNOWN,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}",
        remark=words,
        rows=rows_from(tables[name], markdown),
    )
    return write_record(folder, record, measured)
