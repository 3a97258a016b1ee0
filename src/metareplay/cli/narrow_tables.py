"""Tables that fit a narrow terminal: cells and headers wrap between words, and what is left follows below."""

from collections.abc import Collection, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.markup import render
from rich.table import Table

GAP = 2
"""Columns of the terminal between two of the table."""


def print_columns(
    console: Console, headers: Sequence[str], rows: Sequence[Sequence[str]], *, first: int, whole: Collection[str] = ()
) -> None:
    """Print rows of cells (Rich's markup); columns that do not fit follow in a table of their own.

    Each table begins with the ``first`` columns; those that are ``whole`` do not wrap.
    """
    cells = [[header, *(row[index] for row in rows)] for index, header in enumerate(headers)]
    least = [_widest(column, whole=column[0] in whole) for column in cells]
    start = list(range(first))
    chosen = list(start)
    parts = [chosen]
    for index in range(first, len(headers)):
        if len(chosen) > first and sum(least[i] + GAP for i in [*chosen, index]) - GAP > console.width:
            chosen = list(start)
            parts.append(chosen)
        chosen.append(index)
    for part in parts:
        _print_part(console, [cells[index] for index in part], [least[index] for index in part])


def _print_part(console: Console, cells: Sequence[Sequence[str]], least: Sequence[int]) -> None:
    widths = [_widest(column, whole=True) for column in cells]
    while sum(widths) + GAP * (len(widths) - 1) > console.width:
        slack = [width - smallest for width, smallest in zip(widths, least, strict=True)]
        if max(slack) <= 0:
            break  # even the words do not fit
        widths[slack.index(max(slack))] -= 1
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for column, width in zip(cells, widths, strict=True):
        table.add_column(column[0], width=width, overflow="fold")
    for row in zip(*(column[1:] for column in cells), strict=True):
        table.add_row(*row)
    console.print(table, highlight=False)


def _widest(column: Sequence[str], *, whole: bool) -> int:
    """The width of the longest cell, or of the longest word."""
    texts = [render(cell).plain for cell in column]
    pieces = [piece for text in texts for piece in ([text] if whole else text.split())]
    return max([1, *map(cell_len, pieces)])
