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


def render(table: Table, records: Mapping[str, Record]) -> Rendered:
    """A table as Markdown."""
    lines = paper_lines(table, records) if table.paper else lines_of(matching(records, table.records), table.where)
    if not lines:
        raise LookupError(f"no row has the labels {table.where}")
    remarks = dict.fromkeys(line.record.remark for line in lines if line.record is not None and line.record.remark)
    text = [piece for remark in remarks for piece in (remark, "")]
    text += ["| " + " | ".join(column.title for column in table.columns) + " |", "|" + "---|" * len(table.columns)]
    above: list[str] = []
    for line in lines:
        cells = [_cell(column, line) for column in table.columns]
        blank = [
            column.once and bool(above) and above[: i + 1] == cells[: i + 1] for i, column in enumerate(table.columns)
        ]
        text.append("| " + " | ".join("" if empty else cell for cell, empty in zip(cells, blank, strict=True)) + " |")
        above = cells
    if table.command:
        text += ["", stated_commands(lines)]
    return Rendered("\n".join(text), tuple(line for line in lines if line.record is not None))


def _new(columns: Sequence[Column], cells: Sequence[str], above: Sequence[str]) -> list[str]:
    """The cells of a row, those that repeat the row above left empty where the column wants it."""
    repeats = [bool(above) and above[: place + 1] == cells[: place + 1] for place in range(len(cells))]
    return ["" if column.once and same else cell for column, cell, same in zip(columns, cells, repeats, strict=True)]


def _cell(column: Column, line: Line) -> str:
    own = column.cell if line.record is not None or column.paper is None else column.paper
    templates = [own] if isinstance(own, str) else own
    cells = (filled(template, line) for template in templates)
    return next((cell for cell in cells if cell is not None), column.missing)


def stated_commands(lines: Sequence[Line]) -> str:
    """How the rows were measured: each command once, with the names of its records."""
    by_command: dict[str, list[str]] = {}
    for line in lines:
        if line.record is not None:
            names = by_command.setdefault(line.record.command, [])
            names += [line.name] if line.name not in names else []
    if len(by_command) == 1:
        ((command, names),) = by_command.items()
        return f"*Measured by `{command}`; {_files(names)}.*"
    every = [name for names in by_command.values() for name in names]
    return f"*Each row's command is in its record: {_files(every)}.*"


def _files(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"`results/{names[0]}.json`"
    folders = dict.fromkeys(name.partition("/")[0] for name in names)
    return ", ".join(f"`results/{folder}/`" for folder in folders)


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
