"""The figures of a report. Each function takes plain numbers and gives a matplotlib Figure; none needs a model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from metareplay.report.base import Estimate
from metareplay.report.canvas import BLUE, GREEN, LIGHT, ORANGE, PALETTE, PURPLE, VERMILION, Theme, new_figure, plain, style_axes

Array = NDArray[np.floating]
History = Sequence[Mapping[str, Any]]
"""The training lines of one run's metrics.jsonl, in order."""

TERMS = {
    "loss": ("total loss", BLUE),
    "data": ("data", GREEN),
    "prior": ("prior matching", ORANGE),
    "replay": ("replay penalty", PURPLE),
}
_MOST_NUMBERS = 12  # up to so many tasks a matrix shows its numbers
_MOST_POINTS = 800  # a longer curve is thinned out


def learning_curves_figure(histories: Sequence[History], names: Sequence[str], *, theme: Theme = LIGHT) -> Figure | None:
    """Each term of the loss over all tasks, one line per seed; None if nothing was recorded.

    Iterations are counted within a task, so each task starts where the one before it ended.
    """
    terms = [term for term in TERMS if any(line.get(term) for history in histories for line in history)]
    if not terms:
        return None
    starts = _task_starts(histories, len(names))
    figure = new_figure(7.4, 0.5 + 1.35 * len(terms))
    panels = figure.subplots(len(terms), 1, sharex=True, squeeze=False)[:, 0]
    for axes, term in zip(panels, terms, strict=True):
        label, colour = TERMS[term]
        style_axes(axes, theme)
        for task in range(1, len(names), 2):
            axes.axvspan(starts[task], starts[task + 1], color=theme.muted, alpha=0.09, linewidth=0)
        curves = [_curve(history, term, starts) for history in histories]
        for x, y in curves:
            axes.plot(x, y, color=colour, linewidth=1.3, alpha=1.0 if len(curves) == 1 else 0.55)
        _scale_losses(axes, np.concatenate([y for _, y in curves]))
        axes.set_ylabel(label)
    panels[-1].set_xlabel("iteration")
    panels[-1].set_xlim(0, starts[-1])
    figure.align_ylabels(list(panels))
    _name_tasks(panels[0], names, starts, theme)
    return figure


def matrix_figure(matrix: Array, names: Sequence[str], *, error: bool = False, theme: Theme = LIGHT) -> Figure:
    """Accuracy in percent (or the squared error) on each task after each task; NaN where a task had not been learned yet."""
    figure, axes = _square_figure(len(names), len(names))
    if error:
        known = matrix[np.isfinite(matrix) & (matrix > 0)]
        low, high = (np.log(known.min()), np.log(known.max())) if known.size else (0.0, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            strength = 0.1 + 0.8 * np.clip((np.log(matrix) - low) / max(high - low, np.log(10)), 0, 1)
    else:
        strength = matrix / 100
    _heat_map(axes, matrix, strength, VERMILION if error else BLUE, "{:.3g}" if error else "{:.1f}", theme)
    _label_matrix(axes, names, "task", "after learning task", theme)
    return figure


def confusion_figure(shares: Array, names: Sequence[str], *, theme: Theme = LIGHT) -> Figure:
    """Which task the inputs of each task were given to: rows the true task, columns the inferred one, in percent."""
    figure, axes = _square_figure(*shares.shape)
    _heat_map(axes, shares, shares / 100, BLUE, "{:.0f}", theme)
    _label_matrix(axes, names, "inferred task", "true task", theme)
    return figure


def comparison_figure(
    rows: Mapping[str, Mapping[str, Estimate | None]], *, label: str = "accuracy in %", log: bool = False, theme: Theme = LIGHT
) -> Figure:
    """One line per method and one mark per figure, with its standard error: ``rows[method][figure]``."""
    series = list(dict.fromkeys(name for marks in rows.values() for name in marks))
    figure = new_figure(7.4, 1.0 + 0.34 * len(rows))
    axes = figure.subplots()
    style_axes(axes, theme, frame=("bottom",))
    axes.hlines(range(len(rows)), 0, 1, transform=axes.get_yaxis_transform(), color=theme.line, linewidth=0.8, zorder=0)
    for number, name in enumerate(series):
        marks = [(row, estimate) for row, by_name in enumerate(rows.values()) if (estimate := by_name.get(name)) is not None]
        style: dict[str, Any] = {"color": PALETTE[number % len(PALETTE)], "marker": "osD^vPX"[number % 7]}
        errors = [estimate.standard_error or 0.0 for _, estimate in marks]
        axes.errorbar([e.mean for _, e in marks], [row for row, _ in marks], xerr=errors, linestyle="", markersize=6, label=name, **style)
    axes.set_yticks(range(len(rows)), plain(list(rows)))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=theme.ink)
    axes.set_xlabel(label)
    if log:
        axes.set_xscale("log")
    figure.legend(loc="outside upper left", ncols=min(len(series), 4), frameon=False, labelcolor=theme.ink, fontsize=9, handletextpad=0.2)
    return figure


def _task_starts(histories: Sequence[History], tasks: int) -> list[int]:
    """Where each task begins on the common axis, and at the end where the last one ends."""
    lengths = [0] * tasks
    for line in (line for history in histories for line in history):
        if line["task"] < tasks:
            lengths[line["task"]] = max(lengths[line["task"]], int(line["iteration"]))
    return [0, *np.cumsum(lengths).tolist()]


def _curve(history: History, term: str, starts: Sequence[int]) -> tuple[Array, Array]:
    known = (line for line in history if line["task"] < len(starts) - 1 and line.get(term) is not None)
    points = [(starts[line["task"]] + line["iteration"], line[term]) for line in known]
    if not points:
        return np.empty(0), np.empty(0)
    x, y = np.array(points[:: -(-len(points) // _MOST_POINTS)], dtype=np.float64).T  # (points, 2) -> (points,), (points,)
    return x, y


def _scale_losses(axes: Axes, values: Array) -> None:
    values = values[np.isfinite(values)]
    if values.size and values.min() > 0 and values.max() > 30 * values.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if values.max() > 1000 * values.min() else (1.0, 3.0), numticks=6))
        axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(4))


def _name_tasks(axes: Axes, names: Sequence[str], starts: Sequence[int], theme: Theme) -> None:
    """Names above the first panel, as many as fit."""
    room = max(1, int(72 / (max(map(len, names)) + 2)))
    for task in range(0, len(names), -(-len(names) // room)):
        middle = (starts[task] + starts[task + 1]) / 2
        axes.annotate(
            plain(names)[task],
            (middle, 1),
            (0, 4),
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            ha="center",
            color=theme.muted,
            size=9,
        )


def _square_figure(rows: int, columns: int) -> tuple[Figure, Axes]:
    cell = 0.56 if max(rows, columns) <= _MOST_NUMBERS else 4.2 / max(rows, columns)
    figure = new_figure(max(1.1 + cell * columns, 2.6), max(0.8 + cell * rows, 1.8))
    axes = figure.subplots()
    axes.set_aspect("equal")
    return figure, axes


def _heat_map(axes: Axes, values: Array, strength: Array, colour: str, number: str, theme: Theme) -> None:
    """Cells of one colour whose opacity is the strength, so that the same cells read well on light and on dark."""
    rows, columns = values.shape
    opacity = np.where(np.isfinite(values), np.clip(np.nan_to_num(strength, posinf=1.0), 0.03, 1.0), 0.0)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    if max(rows, columns) > _MOST_NUMBERS:
        image = np.dstack([np.broadcast_to(np.array(to_rgb(colour)), (rows, columns, 3)), opacity])  # (rows, columns, 4)
        axes.imshow(image, interpolation="none")
        return
    for (row, column), value in np.ndenumerate(values):
        if not np.isfinite(value):
            continue
        alpha = float(opacity[row, column])
        axes.add_patch(Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, color=colour, alpha=alpha, linewidth=0, in_layout=False))
        ink = "#ffffff" if alpha > 0.8 else theme.ink
        axes.text(column, row, number.format(value), ha="center", va="center", size=9, color=ink, in_layout=False)


def _label_matrix(axes: Axes, names: Sequence[str], x_label: str, y_label: str, theme: Theme) -> None:
    style_axes(axes, theme, frame=())
    step = -(-len(names) // _MOST_NUMBERS)
    long = max(map(len, names)) > 6
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(range(0, len(names), step), [name if len(name) <= 14 else f"{name[:13]}…" for name in plain(names)[::step]])
    axes.tick_params(length=0)
    if long:
        axes.tick_params(axis="x", rotation=40)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
