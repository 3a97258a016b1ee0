"""The paper's results tables as data (paper/tables.yaml)."""

import difflib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from metareplay.benchmarks.registry import BENCHMARKS
from metareplay.errors import ConfigError
from metareplay.texts import read_yaml


@dataclass(frozen=True)
class PaperRow:
    """One row: the method's name in the paper and here (None: cited from other work), and its figures."""

    paper: str
    method: str | None
    figures: dict[str, tuple[float, float | None]]
    """Mean and standard error by the figure's key."""
    batch_wise: bool = False
    """The task is inferred for batches of inputs together."""
    network: str | None = None
    """The network that stands for the cited one; None: that of the table."""


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper: which benchmark and network, and its rows."""

    name: str
    label: str
    title: str
    benchmark: str
    network: str
    rows: tuple[PaperRow, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of its runs that override their recipes; keys that have no effect with a method are ignored."""
    other_labels: tuple[str, ...] = ()
    """Tables of the paper's main text that show some of the same figures."""

    @property
    def regression(self) -> bool:
        """Whether its figures are errors."""
        return BENCHMARKS[self.benchmark].problem == "regression"

    @property
    def own_rows(self) -> tuple[PaperRow, ...]:
        """The rows that can be run; the others cite figures of other work that has no counterpart here."""
        return tuple(row for row in self.rows if row.method is not None)


@cache
def paper_tables() -> dict[str, PaperTable]:
    """All tables by their plain names."""
    file = resources.files("metareplay.paper") / "tables.yaml"
    tables = {}
    for name, entry in read_yaml(file.read_text()).items():
        rows = []
        for row in entry.pop("rows"):
            figures = {key: (value[0], value[1]) for key, value in row["figures"].items()}
            kind = (row.get("batch_wise", False), row.get("network"))
            rows.append(PaperRow(row["paper"], row.get("method"), figures, *kind))
        tables[name] = PaperTable(name, rows=tuple(rows), other_labels=tuple(entry.pop("other_labels", ())), **entry)
    return tables


def paper_table(name: str) -> PaperTable:
    """A table by its plain name or its label in the paper."""
    tables = paper_tables()
    by_label = {label: table for table in tables.values() for label in (table.label, *table.other_labels)}
    if name in tables or name in by_label:
        return tables.get(name) or by_label[name]
    near = difflib.get_close_matches(name, [*tables, *by_label], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"table {name!r} is unknown; choose one of {', '.join(tables)} (metareplay list tables){hint}")
