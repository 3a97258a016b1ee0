"""The figures of 1D regression: predictions of each task's final posterior, for one or more methods side by side."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from metareplay.errors import DataError
from metareplay.report.figures.canvas import LIGHT, PALETTE, Theme, new_figure, note, plain, style_axes

Array = NDArray[np.floating]
Points = Sequence[tuple[Array, Array]]
"""Per task the inputs and targets of its training points."""
DASHES = (0, (4, 3))


class Curves(NamedTuple):
    """Predictions of all tasks over the inputs: ``x`` is (N,); ``mean``, ``std`` and ``truth`` are (T, N).

    A truth of NaN is not drawn.
    """

    x: Array
    mean: Array
    std: Array
    train: Points
    truth: Array | None = None
    one_posterior: bool = False
    """Whether one posterior answers for all tasks (prior-focused methods); its samples may differ from task to task."""

    @property
    def uncertain(self) -> bool:
        """Whether there is any uncertainty; a deterministic method has none."""
        return bool(np.any(self.std > 0))

    @property
    def infers(self) -> bool:
        """Whether a task can be inferred from the smallest uncertainty."""
        return self.uncertain and not self.shared

    @property
    def shared(self) -> bool:
        """Whether one curve stands for all tasks."""
        return self.one_posterior or (
            len(self.mean) > 1 and bool(np.all(self.mean == self.mean[0]) and np.all(self.std == self.std[0]))
        )


def regression_figure(
    x: Array,
    mean: Array,
    std: Array,
    train: Points,
    names: Sequence[str],
    *,
    truth: Array | None = None,
    theme: Theme = LIGHT,
) -> Figure:
    """For each task the predictive mean ± one standard deviation, its training points, the true function dashed.

    Where the task's standard deviation is the smallest, so that task inference chooses it, its mean is bold and the
    strip below has its colour. Without any uncertainty nothing can be inferred: all means are bold and there is no
    strip.
    """
    return regression_methods_figure({"": Curves(x, mean, std, train, truth)}, names, theme=theme)


def regression_methods_figure(methods: Mapping[str, Curves], names: Sequence[str], *, theme: Theme = LIGHT) -> Figure:
    """The same for several methods side by side, with shared axes.

    One posterior for all tasks is drawn once, in the colour of text.
    """
    for curves in methods.values():
        _check_shapes(
            {"mean": curves.mean, "std": curves.std, "truth": curves.truth},
            (len(names), len(curves.x)),
            len(curves.train),
        )
    columns = 1 if len(methods) == 1 else 2 if len(methods) in (2, 4) else 3
    rows = -(-len(methods) // columns)
    figure = new_figure(7.4 if columns < 3 else 9.6, 0.5 + 3.5 if columns == 1 else 0.9 + 2.6 * rows)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for place, (axes, (label, curves)) in enumerate(zip(panels.flat, methods.items(), strict=False)):
        lowest = _posteriors(axes, curves, names, theme)
        axes.set_title(fill(plain([label])[0], 28), color=theme.ink, fontsize=11)
        axes.set_ylabel("y" if place % columns == 0 else "")
        lowest.set_xlabel("x" if place + columns >= len(methods) else "")
    for axes in list(panels.flat)[len(methods) :]:
        axes.set_visible(False)
    _frame(panels, list(methods.values()))
    if any(curves.infers for curves in methods.values()):
        note(
            figure,
            "strip: the task inferred by variance, whose standard deviation is the smallest; its mean is bold there",
            theme,
        )
    _legend(figure, names, methods, theme)
    return figure


def _posteriors(axes: Axes, curves: Curves, names: Sequence[str], theme: Theme) -> Axes:
    """Draw one method; returns the axes with the x ticks: those of the strip below, if there is one."""
    style_axes(axes, theme)
    x, uncertain, shared = curves.x, curves.uncertain, curves.shared
    chosen = np.argmin(curves.std, axis=0)  # (T, N) -> (N,)
    for task, name in enumerate(plain(names)):
        colour = PALETTE[task % len(PALETTE)]
        if not (shared and task):
            mean, std, line = curves.mean[task], curves.std[task], theme.ink if shared else colour
            axes.fill_between(
                x, mean - std, mean + std, color=line, alpha=0.15 if shared else 0.2, linewidth=0, zorder=1
            )
            axes.plot(x, mean, color=line, linewidth=1.4, alpha=0.5, zorder=2)
            bold = (chosen == task) | (not uncertain) | shared
            axes.plot(x, np.where(bold, mean, np.nan), color=line, linewidth=2.4, zorder=3, label=name)
        if curves.truth is not None:
            axes.plot(x, curves.truth[task], color=theme.ink, linewidth=1.2, linestyle=DASHES, alpha=0.75, zorder=4)
        axes.scatter(*curves.train[task], s=22, color=colour, edgecolors=theme.paper, linewidths=0.7, zorder=5)
    axes.tick_params(labelbottom=not curves.infers, labelleft=True)
    return _strip(axes, x, chosen, len(names), theme) if curves.infers else axes


def _strip(axes: Axes, x: Array, chosen: NDArray[np.integer], tasks: int, theme: Theme) -> Axes:
    """The colour of the chosen task (N,), in place of the axes' bottom line."""
    strip = axes.inset_axes((0, -0.075, 1, 0.05), sharex=axes)
    style_axes(strip, theme, frame=())
    for task in range(tasks):
        colour = PALETTE[task % len(PALETTE)]
        strip.fill_between(x, 0, 1, where=(chosen == task).tolist(), step="mid", color=colour, linewidth=0)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="x", length=0)
    strip.set(yticks=[], ylim=(0, 1))
    return strip


def _legend(figure: Figure, names: Sequence[str], methods: Mapping[str, Curves], theme: Theme) -> None:
    if len(names) > len(PALETTE):
        return
    entries: list[tuple[str, dict[str, Any]]] = []
    if not all(curves.shared for curves in methods.values()):
        entries += [(name, {"color": PALETTE[task], "linewidth": 2.4}) for task, name in enumerate(plain(names))]
    if any(curves.shared for curves in methods.values()):
        entries.append(("one posterior for all tasks", {"color": theme.ink, "linewidth": 2.4}))
    if any(curves.truth is not None for curves in methods.values()):
        entries.append(("truth", {"color": theme.ink, "linewidth": 1.2, "linestyle": DASHES, "alpha": 0.75}))
    handles: list[Any] = [Line2D([], [], **style) for _, style in entries]
    handles.append(Line2D([], [], linestyle="", marker="o", markersize=5.5, color=theme.muted))
    labels = [*(label for label, _ in entries), "training points"]
    if any(curves.uncertain for curves in methods.values()):
        handles.append(Patch(color=theme.muted, alpha=0.25, linewidth=0))
        labels.append("± 1 std. dev.")
    # as the legend fills its columns
    parts = {columns: np.array_split(labels, columns) for columns in range(1, len(labels) + 1)}
    # in characters
    wide = {columns: sum(max(map(len, part)) + 9 for part in split) for columns, split in parts.items()}
    columns = max((columns for columns in wide if wide[columns] < 13 * figure.get_figwidth()), default=1)
    figure.legend(
        handles, labels, loc="outside upper center", ncols=columns, frameon=False, labelcolor=theme.ink, fontsize=9
    )


def _frame(panels: Any, methods: Sequence[Curves]) -> None:
    """Fit the frame to the training points: far from them a band or a polynomial may leave it."""
    targets = np.concatenate([np.ravel(y) for curves in methods for _, y in curves.train])
    margin = 0.6 * max(float(np.ptp(targets)), 1e-6)
    for axes in panels.flat:
        axes.set_xlim(float(np.min(methods[0].x)), float(np.max(methods[0].x)))
        axes.set_ylim(float(targets.min()) - margin, float(targets.max()) + margin)


def _check_shapes(arrays: dict[str, Array | None], expected: tuple[int, ...], tasks: int) -> None:
    for name, array in arrays.items():
        if array is not None and array.shape != expected:
            raise DataError(
                f"{name} has shape {array.shape} but {expected} is needed: one map per task over all points of the axes"
            )
    if tasks != expected[0]:
        raise DataError(
            f"there are training points of {tasks} tasks but {expected[0]} tasks; give one pair of arrays per task"
        )
