"""The figures of a report. Each function takes plain numbers and returns a matplotlib Figure; none needs a model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from metareplay.report.figures.canvas import (
    BLUE,
    GREEN,
    LIGHT,
    ORANGE,
    PURPLE,
    VERMILION,
    Theme,
    new_figure,
    note,
    plain,
    style_axes,
)

Array = NDArray[np.floating]
History = Sequence[Mapping[str, Any]]
"""The training lines of one run's metrics.jsonl, in order."""

TERMS = {
    "loss": ("total loss", BLUE),
    "data": ("data term", GREEN),
    "prior": ("prior matching", ORANGE),
    "replay": ("replay penalty", PURPLE),
}
_MEANING = (
    "data term: mean negative log-likelihood of a batch × number of training examples; all terms as they are added up"
)
_SYMLOG = "between 0 and a dotted line an axis is linear, beyond it logarithmic"
MOST_NUMBERS = 12  # a matrix of up to this many tasks shows its numbers
_MOST_POINTS = 800  # a longer curve is thinned


def learning_curves_figure(
    histories: Sequence[History], names: Sequence[str], *, theme: Theme = LIGHT
) -> Figure | None:
    """Each term of the loss in nats over all tasks, one line per seed; None if nothing was recorded.

    Iterations are counted within a task, so each task starts where the one before it ended. A term that is mostly small
    except for a few peaks has a logarithmic axis, or, if it can be zero or negative, one that is linear around zero,
    between dotted lines.
    """
    terms = [term for term in TERMS if any(line.get(term) for history in histories for line in history)]
    if not terms:
        return None
    starts = _task_starts(histories, len(names))
    figure = new_figure(7.4, 0.75 + 1.35 * len(terms))
    panels, bent = figure.subplots(len(terms), 1, sharex=True, squeeze=False)[:, 0], False
    for axes, term in zip(panels, terms, strict=True):
        label, colour = TERMS[term]
        style_axes(axes, theme)
        for task in range(1, len(names), 2):
            axes.axvspan(starts[task], starts[task + 1], color=theme.muted, alpha=0.09, linewidth=0)
        curves = [_curve(history, term, starts) for history in histories]
        for x, y in curves:
            axes.plot(x, y, color=colour, linewidth=1.3, alpha=1.0 if len(curves) == 1 else 0.55)
        bent |= _scale_losses(axes, np.concatenate([y for _, y in curves]), theme)
        axes.set_ylabel(f"{label}\nin nats")
    panels[-1].set_xlabel("iteration")
    panels[-1].set_xlim(0, starts[-1])
    figure.align_ylabels(list(panels))
    _name_tasks(panels[0], names, starts, theme)
    note(figure, f"{_MEANING};\n{_SYMLOG}" if bent else _MEANING, theme)
    return figure


def matrix_figure(matrix: Array, names: Sequence[str], *, error: bool = False, theme: Theme = LIGHT) -> Figure:
    """Accuracy in percent (or squared error) on each task after each task; NaN where a task was not learned yet."""
    look = (
        _Look("mean squared error", VERMILION, _short, _decades(matrix), 0.1, 0.9)
        if error
        else _Look("accuracy in %", number="{:.1f}".format)
    )
    figure, axes = _heat_map(matrix, look, theme)
    _label_matrix(axes, names, "task", "after learning task", theme)
    return figure


def confusion_figure(
    shares: Array, names: Sequence[str], *, criterion: str = "", of: str = "task", theme: Theme = LIGHT
) -> Figure:
    """What the inputs of each task (or label) were taken for: rows the truth, columns the answer, in percent."""
    title = f"inputs in %\ninferred by {plain([criterion])[0]}" if criterion else "inputs in %"
    figure, axes = _heat_map(shares, _Look(title), theme)
    _label_matrix(axes, names, f"inferred {of}" if of == "task" else "answer", f"true {of}", theme)
    return figure


def _task_starts(histories: Sequence[History], tasks: int) -> list[int]:
    """Where each task begins on the shared axis, and where the last one ends."""
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
    # (points, 2) -> (points,), (points,)
    x, y = np.array(points[:: -(-len(points) // _MOST_POINTS)], dtype=np.float64).T
    return x, y


def _scale_losses(axes: Axes, values: Array, theme: Theme) -> bool:
    """Set a scale on which both typical and extreme values can be read; returns whether it is linear only near zero."""
    size = np.abs(values[np.isfinite(values) & (values != 0)])
    low, high = (float(values[np.isfinite(values)].min()), float(size.max())) if size.size else (0.0, 0.0)
    usual = float(np.median(size)) if size.size else 0.0
    axes.yaxis.set_major_locator(MaxNLocator(4))
    if low > 0 and high > 30 * low:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 300 * low else (1.0, 3.0), numticks=6))
    elif low <= 0 and high > 30 * usual:
        edge = _nice(min(float(np.percentile(size, 90)), 5 * usual)) if low < 0 else 10.0 ** np.floor(np.log10(usual))
        axes.set_yscale("symlog", linthresh=edge, linscale=2.0 if low < 0 else 1.0)
        powers = [10.0**power for power in range(int(np.ceil(np.log10(4 * edge))), int(np.floor(np.log10(high))) + 1)]
        step = max(-(-len(powers) // 3), 1)
        ticks = [edge, *powers[::-1][: len(powers) - step + 1 : step]]  # few, from the top, and none close to the edge
        axes.yaxis.set_major_locator(FixedLocator([0.0, *ticks, *(-tick for tick in ticks if tick <= -low)]))
        for place in (edge, -edge):
            if place >= low:
                axes.axhline(place, color=theme.muted, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    return axes.get_yscale() == "symlog"


def _nice(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value * (1 - 1e-9)))


def _tick(value: float) -> str:
    """A number for an axis, with a power of ten if it would be long."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:g}".replace("-", "−")
    mantissa, power = f"{value:e}".split("e")
    factor = {1.0: "", -1.0: "-"}.get(float(mantissa), rf"{float(mantissa):g}\cdot ")
    return f"${factor}10^{{{int(power)}}}$"


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


class _Look(NamedTuple):
    """What the cells of a matrix show, and how: opacity goes from ``pale`` to ``full`` over the range of ``scale``."""

    title: str
    colour: str = BLUE
    number: Callable[[float], str] = "{:.0f}".format
    scale: Normalize = Normalize(0, 100)
    pale: float = 0.03
    full: float = 1.0


def _short(error: float) -> str:
    """Two significant digits, to fit a cell."""
    return f"{error:.0f}" if 100 <= error < 1e5 else f"{error:.2g}"


def _decades(errors: Array) -> LogNorm:
    """A logarithmic scale that covers all errors, at least one decade."""
    known = errors[np.isfinite(errors) & (errors > 0)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.1, 1.0)
    return LogNorm(low, max(high, 10 * low), clip=True)


def _heat_map(values: Array, look: _Look, theme: Theme) -> tuple[Figure, Axes]:
    """Cells of one colour, more opaque for higher values, so that they read well on both light and dark pages."""
    rows, columns = values.shape
    many = max(rows, columns) > MOST_NUMBERS
    longest = max((len(look.number(float(value))) for value in values[np.isfinite(values)]), default=0)
    cell = 4.2 / max(rows, columns) if many else max(0.56, 0.16 + 0.08 * longest)
    figure = new_figure(max(1.1 + cell * columns + 0.8 * many, 2.6), max(1.05 + cell * rows, 1.8))
    axes = figure.subplots()
    axes.set_aspect("equal")
    # (rows, columns); 0 for an error of 0
    strength = np.ma.filled(look.scale(np.where(np.isfinite(values), values, 0.0)), 0.0)
    opacity = np.where(np.isfinite(values), look.pale + (look.full - look.pale) * np.clip(strength, 0, 1), 0.0)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    if many:
        # (rows, columns, 4)
        image = np.dstack([np.broadcast_to(np.array(to_rgb(look.colour)), (rows, columns, 3)), opacity])
        axes.imshow(image, interpolation="none")
        _colour_bar(figure, axes, look, theme)
        return figure, axes
    axes.set_title(look.title)
    for (row, column), value in np.ndenumerate(values):
        if not np.isfinite(value):
            continue
        alpha = float(opacity[row, column])
        axes.add_patch(
            Rectangle(
                (column - 0.47, row - 0.47), 0.94, 0.94, color=look.colour, alpha=alpha, linewidth=0, in_layout=False
            )
        )
        ink = "#ffffff" if alpha > 0.8 else theme.ink
        axes.text(column, row, look.number(float(value)), ha="center", va="center", size=9, color=ink, in_layout=False)
    return figure, axes


def _colour_bar(figure: Figure, axes: Axes, look: _Look, theme: Theme) -> None:
    colours = LinearSegmentedColormap.from_list("cells", [(look.colour, look.pale), (look.colour, look.full)])
    bar = figure.colorbar(ScalarMappable(look.scale, colours), ax=axes, shrink=0.7, aspect=22, pad=0.02)
    bar.ax.patch.set_alpha(0.0)
    bar.ax.tick_params(which="both", colors=theme.muted, labelsize=9)
    bar.set_label(look.title.replace("\n", ", "), color=theme.ink)
    bar.outline.set_visible(False)


def _label_matrix(axes: Axes, names: Sequence[str], x_label: str, y_label: str, theme: Theme) -> None:
    style_axes(axes, theme, frame=())
    step = -(-len(names) // MOST_NUMBERS)
    long = max(map(len, names)) > 6
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(
            range(0, len(names), step), [name if len(name) <= 14 else f"{name[:13]}…" for name in plain(names)[::step]]
        )
    axes.tick_params(length=0)
    if long:
        for label in axes.get_xticklabels():
            label.set(rotation=40, ha="right", rotation_mode="anchor")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
