"""The pictures of the two toy problems: predictions of 1D regression, uncertainty maps of the 2D modes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from metareplay.errors import DataError
from metareplay.report.canvas import LIGHT, PALETTE, Theme, new_figure, plain, style_axes

Array = NDArray[np.floating]
Points = Sequence[tuple[Array, Array]]
"""Per task the inputs and targets of its training points."""

# Dark where the task is sure, bright where it is not: even in lightness, and safe for all kinds of colour vision.
ENTROPY_COLOURS = LinearSegmentedColormap.from_list("entropy", ["#08263d", "#0072B2", "#56B4E9", "#fbe3b0"])


def regression_figure(
    x: Array, mean: Array, std: Array, train: Points, names: Sequence[str], *, truth: Array | None = None, theme: Theme = LIGHT
) -> Figure:
    """Per task the predictive mean and a band of one standard deviation, its training points, the true function dashed.

    ``x`` is (N,); ``mean``, ``std`` and ``truth`` are (T, N); a ``truth`` of NaN is not drawn. A mean is bold, and the
    strip below has the task's colour, where the task's standard deviation is the smallest: there task inference chooses it.
    Without any uncertainty (a deterministic method) nothing can be inferred: all means are bold and there is no strip.
    """
    _check_shapes({"mean": mean, "std": std, "truth": truth}, (len(names), len(x)), len(train))
    figure = new_figure(7.4, 4.0)
    axes, strip = figure.subplots(2, 1, sharex=True, height_ratios=[18, 1])
    style_axes(axes, theme, frame=("left",))
    style_axes(strip, theme, frame=())
    uncertain = bool(np.any(std > 0))
    chosen = np.argmin(std, axis=0)  # (T, N) -> (N,)
    for task, name in enumerate(plain(names)):
        colour = PALETTE[task % len(PALETTE)]
        axes.fill_between(x, mean[task] - std[task], mean[task] + std[task], color=colour, alpha=0.2, linewidth=0, zorder=1)
        axes.plot(x, mean[task], color=colour, linewidth=1.4, alpha=0.5, zorder=2)
        axes.plot(x, np.where((chosen == task) | (not uncertain), mean[task], np.nan), color=colour, linewidth=2.4, label=name, zorder=3)
        if truth is not None:
            axes.plot(x, truth[task], color=theme.ink, linewidth=1.2, linestyle=(0, (4, 3)), alpha=0.75, zorder=4)
        axes.scatter(*train[task], s=22, color=colour, edgecolors=theme.paper, linewidths=0.7, zorder=5)
        if uncertain:
            strip.fill_between(x, 0, 1, where=(chosen == task).tolist(), step="mid", color=colour, linewidth=0)
    _frame_regression(axes, x, train)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("y")
    strip.set(yticks=[], ylim=(0, 1))
    strip.set_xlabel("x      (strip: the task inferred from the smallest uncertainty)" if uncertain else "x")
    handles, labels = axes.get_legend_handles_labels()
    if truth is not None:
        handles += axes.plot([], [], color=theme.ink, linewidth=1.2, linestyle=(0, (4, 3)), alpha=0.75)
        labels.append("truth")
    if len(names) <= len(PALETTE):
        figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, labelcolor=theme.ink, fontsize=10)
    return figure


def modes_figure(grid_x: Array, grid_y: Array, entropy: Array, train: Points, names: Sequence[str], *, theme: Theme = LIGHT) -> Figure:
    """Per task a map of its predictive entropy over the plane, with the training points of all tasks.

    ``entropy[t, i, j]`` in nats belongs to the point (``grid_x[j]``, ``grid_y[i]``). The task's own points are
    filled, one shape per class; those of other tasks are hollow: there the task ought to be unsure.
    """
    _check_shapes({"entropy": entropy}, (len(names), len(grid_y), len(grid_x)), len(train))
    columns = min(len(names), 3)
    rows = -(-len(names) // columns)
    figure = new_figure(1.0 + 2.4 * columns, 0.6 + 2.5 * rows)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    image: Any = None
    for task, axes in enumerate(panels.flat):
        if task >= len(names):
            axes.set_visible(False)
            continue
        image = _modes_panel(axes, grid_x, grid_y, entropy[task], float(np.nanmax(entropy)), theme)
        for other, (points, labels) in enumerate(train):
            _scatter_classes(axes, points, labels, own=other == task)
        axes.set_title(plain(names)[task])
        style_axes(axes, theme, frame=())
    for axes in panels[-1, :]:
        axes.set_xlabel("x₁")
    for axes in panels[:, 0]:
        axes.set_ylabel("x₂")
    bar = figure.colorbar(image, ax=panels, shrink=0.85, aspect=30, pad=0.02)
    bar.set_label("predictive entropy in nats", color=theme.ink)
    bar.ax.tick_params(colors=theme.muted, labelsize=9)
    bar.outline.set_visible(False)
    return figure


def _modes_panel(axes: Axes, grid_x: Array, grid_y: Array, entropy: Array, highest: float, theme: Theme) -> Any:
    extent = (float(grid_x[0]), float(grid_x[-1]), float(grid_y[0]), float(grid_y[-1]))
    axes.set_facecolor(theme.paper)
    return axes.imshow(
        entropy, origin="lower", extent=extent, cmap=ENTROPY_COLOURS, vmin=0, vmax=max(highest, 1e-6), interpolation="bilinear"
    )


def _scatter_classes(axes: Axes, points: Array, labels: Array, *, own: bool) -> None:
    for number, label in enumerate(np.unique(labels)):
        chosen = points[labels == label]  # (n, 2)
        style: dict[str, Any] = {"marker": "o^sDv"[number % 5], "s": 24 if own else 16}
        if own:
            face = PALETTE[(1, 3, 2, 4)[number % 4]]
            axes.scatter(*chosen.T, facecolors=face, edgecolors="#ffffff", linewidths=0.8, **style)
        else:  # a pale line below a dark one is seen on every colour of the map
            axes.scatter(*chosen.T, facecolors="none", edgecolors="#ffffff", linewidths=2.0, alpha=0.6, **style)
            axes.scatter(*chosen.T, facecolors="none", edgecolors="#2b333d", linewidths=0.8, **style)


def _frame_regression(axes: Axes, x: Array, train: Points) -> None:
    """The frame follows the training points: far from them a band or a polynomial may leave it."""
    targets = np.concatenate([np.ravel(y) for _, y in train])
    margin = 0.6 * max(float(np.ptp(targets)), 1e-6)
    axes.set_xlim(float(np.min(x)), float(np.max(x)))
    axes.set_ylim(float(targets.min()) - margin, float(targets.max()) + margin)


def _check_shapes(arrays: dict[str, Array | None], expected: tuple[int, ...], tasks: int) -> None:
    for name, array in arrays.items():
        if array is not None and array.shape != expected:
            raise DataError(f"{name} has shape {array.shape} but {expected} is needed: one map per task over all points of the axes")
    if tasks != expected[0]:
        raise DataError(f"there are training points of {tasks} tasks but {expected[0]} tasks; give one pair of arrays per task")
