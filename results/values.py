"""Rows of tables from records: seeds are put together, and cells are filled in from templates."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from metareplay.report.base import Estimate, estimate_of, show
from metareplay.report.records import Figure, Measured, Record, read_records

FOLDER = Path(__file__).parent
PLACE = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")
"""``{label}``, or ``{figure:.2f}``; ``{figure:.2f±}`` with its standard error, ``{figure:.1f*}`` for each seed,
``{figure:mse}`` with three digits."""


@dataclass(frozen=True)
class Line:
    """What a row of a table is made of: labels, and each figure over the seeds."""

    name: str
    labels: Mapping[str, str]
    seeds: tuple[int, ...]
    figures: Mapping[str, tuple[Figure, ...]]
    record: Record | None = None
    """None for figures of the paper."""

    def estimate(self, key: str) -> Estimate | None:
        """Mean over the seeds, and its standard error."""
        found = self.figures.get(key, ())
        if len(found) == 1:
            return Estimate(found[0].value, found[0].error, 1 if self.lacking(key) else max(1, len(self.seeds)))
        return estimate_of([figure.value for figure in found])

    def lacking(self, key: str) -> bool:
        """Whether some seeds have other figures, but not this one."""
        return 0 < len(self.figures.get(key, ())) < max(map(len, self.figures.values()))


def all_records(folder: Path = FOLDER) -> dict[str, Record]:
    """Every record of the repository, by name."""
    return read_records(folder)


def matching(records: Mapping[str, Record], patterns: Iterable[str]) -> dict[str, Record]:
    """The records that patterns name, in the order of the patterns; a pattern that names none is an error."""
    chosen: dict[str, Record] = {}
    for pattern in patterns:
        names = [name for name in records if fnmatchcase(name, pattern)]
        if not names:
            raise LookupError(f"no record is named {pattern}")
        chosen |= {name: records[name] for name in names}
    return chosen


def lines_of(records: Mapping[str, Record], where: Mapping[str, str | Sequence[str]] | None = None) -> list[Line]:
    """The rows of records, those that differ only in the seed put together."""
    groups: dict[tuple[str, ...], list[Measured]] = {}
    for name, record in records.items():
        for row in record.measured(name):
            if _wanted(row.labels, where or {}):
                groups.setdefault((name, *(f"{key}={value}" for key, value in row.labels.items())), []).append(row)
    return [_line(rows) for rows in groups.values()]


def _wanted(labels: Mapping[str, str], where: Mapping[str, str | Sequence[str]]) -> bool:
    return all(labels.get(key, "") in ([value] if isinstance(value, str) else value) for key, value in where.items())


def _line(rows: Sequence[Measured]) -> Line:
    first = rows[0]
    figures: dict[str, tuple[Figure, ...]] = {}
    for row in rows:
        for key, figure in row.figures.items():
            figures[key] = (*figures.get(key, ()), figure)
    seeds = tuple(seed for row in rows for seed in row.seeds)
    return Line(first.name, first.labels, seeds, figures, first.record)


def filled(template: str, line: Line) -> str | None:
    """A cell, or None if the line lacks something that its template names."""
    texts = []
    for key, form in PLACE.findall(template):
        text = shown(key, form, line)
        if text is None:
            return None
        texts.append(text)
    pieces = iter(texts)
    return PLACE.sub(lambda _: next(pieces), template)


def shown(key: str, form: str, line: Line) -> str | None:
    """A label, or a figure in a format."""
    if key == "seeds":
        return ", ".join(map(str, line.seeds))
    if key == "ours":
        return _ours(line)
    if key in line.labels:
        return line.labels[key]
    if form.endswith("*"):
        values = [number(figure.value, form[:-1]) for figure in line.figures.get(key, ())]
        return ", ".join(values) if values else None
    found = line.estimate(key)
    if found is None:
        return None
    remark = f" ({found.n} of {len(line.seeds)} seeds)" if form.endswith("±") and line.lacking(key) else ""
    found = found if form.endswith("±") else found._replace(standard_error=None)
    form = form.removesuffix("±")
    if form == "mse":
        return show(found, "mse")
    text = number(found.mean, form)
    return (text if found.standard_error is None else f"{text} ± {number(found.standard_error, form)}") + remark


def _ours(line: Line) -> str:
    """What a row is, beside one of the paper."""
    if line.record is None:
        return "paper"
    words = [line.labels[key] for key in ("variant", "other") if key in line.labels]
    count = len(line.seeds)
    seeds = [] if not count else [f"seed {line.seeds[0]}" if count == 1 else f"{count} seeds"]
    return ", ".join(["ours", *seeds, *words])


def number(value: float, form: str) -> str:
    """A number in one of Python's formats; no minus before zero."""
    text = format(value, form or "g")
    return text.removeprefix("-") if not text.strip("-0.") else text
