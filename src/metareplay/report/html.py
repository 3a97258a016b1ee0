"""Small pieces of HTML. Text given to these functions is plain; they escape it."""

import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple

from metareplay.report.base import MISSING, Estimate, Kind, mean_and_error, show_number

_LONG = 40  # characters; a longer heading of a row is wrapped


class Cell(NamedTuple):
    """One cell of a table: its text, what it is sorted by, and how it looks."""

    text: str
    sort: str = ""
    error: str = ""
    best: bool = False
    meaning: str = ""
    badge: str = ""
    gloss: str = ""
    """The paper's name."""


class Card(NamedTuple):
    """One headline figure with a sentence that says what it means."""

    label: str
    value: str
    unit: str
    meaning: str
    gloss: str = ""
    """The paper's name."""


class Bar(NamedTuple):
    """One bar of a chart: its length in percent of the whole, what is written at it, and whether it is the method."""

    label: str
    length: float
    text: str
    remark: str = ""
    own: bool = False


def estimate_cell(value: Estimate | None, kind: Kind, *, best: bool = False) -> Cell:
    """A number with its standard error; a figure that does not apply is a dash and is sorted last."""
    if value is None:
        return Cell(MISSING)
    mean, error = mean_and_error(value, kind)
    return Cell(mean, repr(value.mean), error, best)


def number_cell(value: float, kind: Kind) -> Cell:
    """A number; what is not finite is a dash and is sorted last."""
    return Cell(show_number(value, kind), repr(float(value))) if math.isfinite(value) else Cell(MISSING)


def text_cell(text: str, meaning: str = "", badge: str = "", gloss: str = "") -> Cell:
    return Cell(text, text, meaning=meaning, badge=badge, gloss=gloss)


Rows = Iterable[Sequence[Cell]]


def table(headers: Sequence[str], rows: Rows, *, sortable: bool = False, css: str = "") -> str:
    """A table in a box that scrolls sideways if needed; the first cell of a row is its heading."""
    return grouped_table(headers, [("", rows)], sortable=sortable, css=css)


def grouped_table(
    headers: Sequence[str], groups: Iterable[tuple[str, Rows]], *, sortable: bool = False, css: str = ""
) -> str:
    """The same with rows in groups that have titles and are sorted separately; a group without a title is not headed.

    On a phone the rows of a table with many columns are shown as lists.
    """
    heads = "".join(_head(header, sortable) for header in headers)
    bodies = "".join(_group(title, rows, headers) for title, rows in groups)
    classes = " ".join(filter(None, ("sortable" if sortable else "", "many" if len(headers) > 3 else "", css)))
    names = f' class="{classes}"' if classes else ""
    content = f"<thead><tr>{heads}</tr></thead>{bodies}"
    return f'<div class="panel scroll"><table{names}>{content}</table></div>'


def _group(title: str, rows: Rows, headers: Sequence[str]) -> str:
    head = f'<tr class="group"><th scope="rowgroup" colspan="{len(headers)}">{escape(title)}</th></tr>\n'
    lines = []
    for first, *cells in rows:
        values = "".join(_cell(cell, "td", header) for cell, header in zip(cells, headers[1:], strict=True))
        lines.append(f"<tr>{_cell(first, 'th')}{values}</tr>")
    body = "\n".join(lines)
    return f"<tbody>\n{head if title else ''}{body}\n</tbody>"


def inside(table: str) -> str:
    """A table for a box that has a frame already."""
    return table.replace('class="panel scroll"', 'class="scroll"')


def cards(items: Iterable[Card]) -> str:
    """Headline figures as cards."""
    return f'<ul class="cards">{"".join(_card(item) for item in items)}</ul>'


def bars(title: str, unit: str, rows: Iterable[Bar]) -> str:
    """A chart of horizontal bars, with what they measure."""
    lines = "".join(_bar(row) for row in rows)
    words = f"<figcaption><b>{escape(title)}</b> {escape(unit)}</figcaption>"
    return f'<figure class="panel">{words}<ul class="bars">{lines}</ul></figure>\n'


def heat_table(names: Sequence[str], shares: Sequence[Sequence[float]]) -> str:
    """A square table of percentages: the higher, the darker its cell; numbers that are not finite stay empty."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr><th>{escape(name)}</th>{''.join(_heat_cell(value) for value in row)}</tr>"
        for name, row in zip(names, shares, strict=True)
    )
    return f'<table class="heat"><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>'


def _heat_cell(value: float) -> str:
    if not math.isfinite(value):
        return "<td></td>"
    return f'<td class="h{round(value / 10)}">{value:.0f}</td>'


def figure(svg: str, title: str, caption: str, *, wide: bool = False) -> str:
    """A drawing or a table with a title and how to read it; ``svg`` is markup already."""
    css = "panel wide" if wide else "panel"
    words = f"<figcaption><b>{escape(title)}</b> {escape(caption)}</figcaption>"
    return f'<figure class="{css}">{words}<div class="scroll">{svg}</div></figure>\n'


def details(summary: str, content: str, *, css: str = "panel", remark: str = "", opened: bool = False) -> str:
    """Something the reader opens; ``content`` is markup already."""
    small = f"<span>{escape(remark)}</span>" if remark else ""
    state = " open" if opened else ""
    return f'<details class="{css}"{state}><summary>{escape(summary)}{small}</summary>{content}</details>\n'


def code(text: str, *, css: str = "") -> str:
    """Preformatted text, in a box that scrolls sideways."""
    names = f' class="{css}"' if css else ""
    return f"<pre{names}>{escape(text.rstrip())}</pre>"


def document(title: str, header: str, main: str, footer: str) -> str:
    """The whole page. It fetches nothing, and the policy in its head forbids it to."""
    folder = files("metareplay.report")
    css, script = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title>
<style>
{css}</style>
</head>
<body>
<header>{header}</header>
<main>
{main}
</main>
<footer>{footer}</footer>
<script>
{script}</script>
</body>
</html>
"""


def _head(header: str, sortable: bool) -> str:
    if not sortable:
        return f'<th scope="col">{escape(header)}</th>'
    return f'<th scope="col" aria-sort="none"><button type="button">{escape(header)}</button></th>'


def _cell(cell: Cell, tag: str, header: str = "") -> str:
    css = "best" if cell.best else "long" if tag == "th" and len(cell.text) > _LONG else ""
    attributes = (
        f' data-sort="{escape(cell.sort)}"'
        + (f' class="{css}"' if css else "")
        + (' scope="row"' if tag == "th" else "")
        + (f' data-label="{escape(header)}"' if header and cell.text else "")
    )
    error = f' <span class="error">± {escape(cell.error)}</span>' if cell.error else ""
    meaning = f'<span class="meaning">{escape(cell.meaning)}</span>' if cell.meaning else ""
    badge = f' <span class="badge">{escape(cell.badge)}</span>' if cell.badge else ""
    badge += f' <span class="gloss">{escape(cell.gloss)}</span>' if cell.gloss else ""
    return f"<{tag}{attributes}>{escape(cell.text)}{badge}{error}{meaning}</{tag}>"


def _card(card: Card) -> str:
    unit = f" <small>{escape(card.unit)}</small>" if card.unit else ""
    gloss = f' <span class="gloss">{escape(card.gloss)}</span>' if card.gloss else ""
    return (
        f'<li><span class="label">{escape(card.label)}</span>{gloss}'
        f'<span class="value">{escape(card.value)}{unit}</span>'
        f'<span class="why">{escape(card.meaning)}</span></li>'
    )


def _bar(bar: Bar) -> str:
    remark = f"<small>{escape(bar.remark)}</small>" if bar.remark else ""
    own = ' class="own"' if bar.own else ""
    length = min(max(bar.length, 0.0), 100.0)
    return (
        f'<li{own}><span class="what">{escape(bar.label)} {remark}</span>'
        f'<span class="track"><span style="width:{length:.2f}%"></span></span>'
        f'<span class="number">{escape(bar.text)}</span></li>'
    )
