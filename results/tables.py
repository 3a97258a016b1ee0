"""Tables of the documents, as data: which records, which columns, which format (tables.yaml)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from metareplay.paper.tables import PaperTable, paper_table
from metareplay.report.records import Figure, Record
from metareplay.texts import read_yaml
from results.values import FOLDER, Line, filled, lines_of, matching


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Column(_Part):
    """A column: its heading, and a template for its cells; of several templates the first that can be filled counts."""

    title: str
    cell: str | list[str]
    paper: str | list[str] | None = None
    """The template for rows of the paper; by default the same."""
    missing: str = ""
    unit: str = ""
    """Of its figures, for records that are read from a table."""
    once: bool = False
    """Left empty where it would repeat the cell above."""


class Table(_Part):
    """A table, or the marks of all rows of the paper."""

    records: list[str] = []
    """Patterns of records' names, in the order of the rows."""
    where: dict[str, str | list[str]] = {}
    """Labels that rows must have."""
    paper: str | None = None
    """A table of the paper: its methods in its order, each with the paper's figures below."""
    methods: list[str] = []
    """Methods of that table; by default all of which there is a record."""
    columns: list[Column]
    command: bool = True
    """Whether the commands are stated below the table."""


@dataclass(frozen=True)
class Rendered:
    """A table as Markdown, and the lines that it is made of."""

    text: str
    lines: tuple[Line, ...]


def definitions() -> dict[str, Table]:
    """All tables by name."""
    found: dict[str, Table] = {}
    for path in sorted((FOLDER / "tables").glob("*.yaml")):
        for name, content in (read_yaml(path.read_text(encoding="utf-8")) or {}).items():
            if name in found:
                raise LookupError(f"the table {name} is defined twice")
            found[name] = Table.model_validate(content)
    return found


def render(table: Table, records: Mapping[str, Record], base: str = "results") -> Rendered:
    """A table as Markdown; ``base`` is the way from the page to the folder of records."""
    lines = paper_lines(table, records) if table.paper else lines_of(matching(records, table.records), table.where)
    if not lines:
        raise LookupError(f"no row has the labels {table.where}")
    ours = tuple(line for line in lines if line.record is not None)
    several = table.command and len({line.name for line in ours}) > 1
    remarks = dict.fromkeys(line.record.remark for line in ours if line.record is not None and line.record.remark)
    text = [piece for remark in remarks for piece in (remark, "")]
    titles = [column.title for column in table.columns]
    text += ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    linked = next((place for place, column in enumerate(table.columns) if not column.once), 0)
    above: list[str] = []
    for line in lines:
        cells = [_cell(column, line) for column in table.columns]
        shown = _new(table.columns, cells, above)
        if several:
            shown[linked] = _link(shown[linked], line, base)
        text.append("| " + " | ".join(shown) + " |")
        above = cells
    if table.command:
        text += ["", "*Each row links to its record, which has the command.*" if several else _command(ours[0], base)]
    return Rendered("\n".join(text), ours)


def _command(line: Line, base: str) -> str:
    """How a table was measured; what was not kept is said in words."""
    command = "" if line.record is None else line.record.command
    stated = command if command.startswith("a script") else f"`{command}`"
    return f"*Measured by {stated} ({_link('record', line, base)}).*"


def _link(words: str, line: Line, base: str) -> str:
    return f"[{words}]({base}/{line.name}.json)" if line.record is not None else words


def _new(columns: Sequence[Column], cells: Sequence[str], above: Sequence[str]) -> list[str]:
    """The cells of a row, those that repeat the row above left empty where the column wants it."""
    repeats = [bool(above) and above[: place + 1] == cells[: place + 1] for place in range(len(cells))]
    return ["" if column.once and same else cell for column, cell, same in zip(columns, cells, repeats, strict=True)]


def _cell(column: Column, line: Line) -> str:
    own = column.cell if line.record is not None or column.paper is None else column.paper
    templates = [own] if isinstance(own, str) else own
    cells = (filled(template, line) for template in templates)
    return next((cell for cell in cells if cell is not None), column.missing)


def paper_lines(table: Table, records: Mapping[str, Record]) -> list[Line]:
    """For each method of a table of the paper: ours, then the paper's."""
    paper = paper_table(table.paper or "")
    chosen = matching(records, table.records)
    lines = lines_of(chosen, table.where)
    ordered: list[Line] = []
    named = dict.fromkeys([str(row.method) for row in paper.own_rows] + [line.labels["method"] for line in lines])
    for method in table.methods or named:
        ours = [line for line in lines if line.labels.get("method") == method]
        ours.sort(key=lambda line: "other" in line.labels)  # what else was tried comes last
        if ours:
            ordered += [*ours, *_of_paper(paper, method)]
    return ordered


def _of_paper(table: PaperTable, method: str) -> list[Line]:
    """The paper's figures of a method, under the names that ours have; none if the table does not have the method."""
    figures: dict[str, tuple[Figure, ...]] = {}
    for row in table.own_rows:
        if row.method == method:
            for key, (value, error) in row.figures.items():
                figures.setdefault(figure_key(key, batch_wise=row.batch_wise), (Figure(value=value, error=error),))
    return [Line("", {"method": method}, (), figures)] if figures else []


def figure_key(key: str, *, batch_wise: bool) -> str:
    """The name that a figure of the paper's tables has in records."""
    if key.startswith("tgiven") or key.startswith("boundary"):
        return key
    known = {"right_task": "right_task.variance", "seconds": "seconds.train", "memory": "memory"}
    return known.get(key) or (f"batch_wise.{key}" if batch_wise else key)
