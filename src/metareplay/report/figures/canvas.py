"""What all figures share: colours, themes, axes, and how a figure is written to a file or a page."""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from metareplay.errors import ConfigError
from metareplay.files import write_atomically

# Okabe and Ito's colour-blind-safe palette; yellow last, since it is faint on white.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442")
BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY, YELLOW = PALETTE


@dataclass(frozen=True)
class Theme:
    """Colours of everything that is not data."""

    ink: str
    muted: str
    line: str
    paper: str


LIGHT = Theme(ink="#1c2128", muted="#59636e", line="#d1d9e0", paper="#ffffff")
DARK = Theme(ink="#e6e9ee", muted="#9aa4b1", line="#3a424d", paper="#14171c")
PAGE = Theme(ink="#010203", muted="#010204", line="#010205", paper="#010206")
"""Stand-ins that `inline_svg` turns into the colours of the page, whatever they are."""

_PAGE_COLOURS = {
    PAGE.ink: "currentColor",
    PAGE.muted: "var(--muted)",
    PAGE.line: "var(--line)",
    PAGE.paper: "var(--card)",
}
_NO_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    "png": {"Software": None},
}
"""By format, metadata that changes from day to day or is not about the figure."""


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, size in inches, with a transparent background."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0.0)
    return figure


def style_axes(axes: Axes, theme: Theme, *, frame: Sequence[str] = ("left", "bottom")) -> None:
    """Quiet axes: only the named sides of the frame, small ticks, text in the theme's colours."""
    axes.patch.set_alpha(0.0)
    for side, spine in axes.spines.items():
        spine.set_visible(side in frame)
        spine.set_color(theme.line)
    # a log axis may name its small ticks too
    axes.tick_params(which="both", colors=theme.muted, labelcolor=theme.muted, labelsize=9)
    axes.tick_params(length=3)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(theme.ink)
        label.set_fontsize(10)
    axes.title.set_color(theme.ink)
    axes.title.set_fontsize(11)


def note(figure: Figure, text: str, theme: Theme) -> None:
    """A small line at the bottom, with what someone who sees only the figure needs to know."""
    figure.supxlabel(text, color=theme.muted, fontsize=8.5, linespacing=1.3)


def plain(names: Sequence[str]) -> list[str]:
    """Names as plain text: matplotlib would typeset what is between two dollar signs as mathematics."""
    return [name.replace("$", r"\$") for name in names]


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as .svg, .pdf or .png, atomically; the same figure gives the same bytes."""
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _NO_METADATA:
        raise ConfigError(f"a figure cannot be saved as {path.name!r}; give a name that ends in .svg, .pdf or .png")
    buffer = io.BytesIO()
    with _drawing("path", path.name):
        figure.savefig(buffer, format=kind, dpi=200, metadata=_NO_METADATA[kind])
    return write_atomically(path, buffer.getvalue())


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an <svg> element for a page: ids begin with ``name``, text stays text, colours follow the page.

    ``name`` has to be unique in the page and ``description`` HTML-escaped.
    """
    buffer = io.StringIO()
    with _drawing("none", name):
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA["svg"])
    svg = buffer.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert box is not None, "matplotlib writes a viewBox"
    body = svg[svg.index(">", svg.index("<svg")) + 1 :].strip()
    body = body.replace("xlink:href", "href")
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", body)
    body = re.sub(r"\s*\n\s*", "\n", body)
    for colour, replacement in _PAGE_COLOURS.items():
        body = body.replace(colour, replacement)
    width, height = (round(float(size)) for size in box.groups())
    style = f"max-width:{width * 4 / 3:.0f}px"
    return f'<svg role="img" aria-label="{description}" viewBox="0 0 {width} {height}" style="{style}">{body}'


@contextmanager
def _drawing(text: str, salt: str) -> Iterator[None]:
    """Draw text as paths, or keep it as text ("none"): scripts that matplotlib's font lacks need the viewer's fonts."""
    with (
        matplotlib.rc_context({"svg.fonttype": text, "svg.hashsalt": salt, "pdf.fonttype": 42}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        yield
