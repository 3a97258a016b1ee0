"""The figure that compares methods."""

from collections.abc import Mapping
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure

from metareplay.report.base import Estimate
from metareplay.report.figures.canvas import LIGHT, PALETTE, Theme, new_figure, plain, style_axes

_DASHES: tuple[Any, ...] = ((0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_MOST_LETTERS = 36  # a longer label is broken into lines


def comparison_figure(
    rows: Mapping[str, Mapping[str, Estimate | None]],
    *,
    label: str = "accuracy in %",
    log: bool = False,
    lines: Mapping[str, float] | None = None,
    theme: Theme = LIGHT,
) -> Figure:
    """One line per method and one mark per figure, with its standard error: ``rows[method][figure]``.

    ``lines`` are figures that all methods are compared with.
    """
    series = list(dict.fromkeys(name for marks in rows.values() for name in marks))
    labels = [fill(label, _MOST_LETTERS) for label in plain(list(rows))]
    deepest = max((label.count("\n") + 1 for label in labels), default=1)
    figure = new_figure(7.4, 1.0 + (0.2 + 0.14 * deepest) * len(rows) + 0.2 * bool(lines))
    axes = figure.subplots()
    style_axes(axes, theme, frame=("bottom",))
    axes.hlines(range(len(rows)), 0, 1, transform=axes.get_yaxis_transform(), color=theme.line, linewidth=0.8, zorder=0)
    for number, name in enumerate(series):
        marks = [
            (row, estimate) for row, by_name in enumerate(rows.values()) if (estimate := by_name.get(name)) is not None
        ]
        style: dict[str, Any] = {"color": PALETTE[number % len(PALETTE)], "marker": "osD^vPX"[number % 7]}
        errors = [estimate.standard_error or 0.0 for _, estimate in marks]
        axes.errorbar(
            [e.mean for _, e in marks],
            [row for row, _ in marks],
            xerr=errors,
            linestyle="",
            markersize=6,
            label=name,
            **style,
        )
    for number, (name, place) in enumerate((lines or {}).items()):
        style = {"color": theme.muted, "linewidth": 1.2, "linestyle": _DASHES[number % len(_DASHES)], "zorder": 0}
        axes.axvline(place, label=plain([name])[0], **style)
    axes.set_yticks(range(len(rows)), labels)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=theme.ink)
    axes.set_xlabel(label)
    if log:
        axes.set_xscale("log")
    handles, names = axes.get_legend_handles_labels()
    marks_first = sorted(range(len(names)), key=lambda entry: names[entry] not in series)
    figure.legend(
        [handles[entry] for entry in marks_first],
        [names[entry] for entry in marks_first],
        loc="outside upper left",
        ncols=2 if lines else min(len(series), 4),
        frameon=False,
        labelcolor=theme.ink,
        fontsize=9,
        handletextpad=0.2,
    )
    return figure
