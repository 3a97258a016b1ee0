"""What a file of measured figures holds, typed (schema 1)."""

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

SCHEMA = 1
UNKNOWN = "unknown"
"""A revision or a machine that was not recorded."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


class Figure(_Part):
    """One measured number: of one run, or a mean."""

    value: float
    unit: str = ""
    error: float | None = None
    """Standard error of a mean over several seeds."""
    inputs: int | None = None
    """Number of test inputs, where it is known."""


class Row(_Part):
    """Figures that belong together, such as those of one seed; what differs from the record's own is said here."""

    labels: dict[str, str] = {}
    seeds: list[int] | None = None
    revision: str | None = None
    date: str | None = None
    machine: str | None = None
    note: str | None = None
    figures: dict[str, Figure]


class Record(_Part):
    """One measurement: what, how, and its figures."""

    schema_version: Literal[1] = Field(1, alias="schema")
    what: str
    """In words."""
    command: str
    """What repeats it; FOLDER stands for the reader's own data."""
    labels: dict[str, str] = {}
    """What tables choose rows by: benchmark, method, network, ..."""
    budget: float | None = None
    """Training length as a share of the recipe's."""
    seeds: list[int] = []
    revision: str = UNKNOWN
    date: str | None = None
    machine: str = UNKNOWN
    note: str = ""
    """Where the figures come from, if that is not plain."""
    remark: str = ""
    """What the measurement says besides its figures; it is shown above its table."""
    rows: list[Row]

    def measured(self, name: str) -> "Iterator[Measured]":
        """Its rows, each with all that is known about it; ``name`` is that of its file."""
        for row in self.rows:
            yield Measured(
                name,
                self,
                {**self.labels, **row.labels},
                self.seeds if row.seeds is None else row.seeds,
                row.revision or self.revision,
                row.figures,
            )

    def text(self) -> str:
        """As its file holds it: one line for each figure."""
        content = self.model_dump(by_alias=True, exclude_defaults=True, exclude={"rows"})
        lines = [f" {json.dumps(key)}: {_compact(value)}," for key, value in {"schema": SCHEMA, **content}.items()]
        rows = ",\n".join(_row_text(row) for row in self.rows)
        return "\n".join(["{", *lines, f' "rows": [\n{rows}\n ]', "}", ""])


class Measured(NamedTuple):
    """A row with what its record says about it."""

    name: str
    """The record's file, without its ending, in its folder of records."""
    record: Record
    labels: dict[str, str]
    seeds: list[int]
    revision: str
    figures: dict[str, Figure]


def _row_text(row: Row) -> str:
    content = row.model_dump(exclude_defaults=True, exclude={"figures"})
    lines = [f"   {json.dumps(key)}: {_compact(value)}," for key, value in content.items()]
    figures = [f"    {json.dumps(key)}: {_compact(_plain(figure))}" for key, figure in row.figures.items()]
    return "\n".join(["  {", *lines, '   "figures": {', ",\n".join(figures), "   }", "  }"])


def _plain(figure: Figure) -> dict[str, Any]:
    content = figure.model_dump(exclude_defaults=True)
    return content | {"value": int(figure.value) if figure.value.is_integer() else figure.value}


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
