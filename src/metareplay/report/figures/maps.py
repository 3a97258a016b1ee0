"""The figures of 2D classification: uncertainty over the plane, decision boundaries and training points."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from metareplay.errors import DataError
from metareplay.report.figures.canvas import LIGHT, PALETTE, Theme, new_figure, plain, style_axes

Array = NDArray[np.floating]
Points = Sequence[tuple[Array, Array]]
"""Per task the inputs (n, 2) and class indices (n,) of its training points."""

# Dark where the task is confident, bright where it is uncertain: uniform in lightness, and colour-blind safe.
UNCERTAINTY_COLOURS = LinearSegmentedColormap.from_list("uncertainty", ["#08263d", "#0072B2", "#56B4E9", "#fbe3b0"])
TASK_COLOURS = tuple(PALETTE[place] for place in (4, 1, 3, 2, 6, 5, 0))  # those that stand out from the map first
MARKERS = "o^sDv"


class Plane(NamedTuple):
    """The points of a map, and the training points that lie on it."""

    grid_x: Array
    grid_y: Array
    train: Points

    @property
    def extent(self) -> tuple[float, float, float, float]:
        return float(self.grid_x[0]), float(self.grid_x[-1]), float(self.grid_y[0]), float(self.grid_y[-1])


class Map(NamedTuple):
    """One panel: ``values[i, j]`` is at (``grid_x[j]``, ``grid_y[i]``).

    ``probability`` (C, rows, columns) gives the boundary.
    """

    values: Array
    task: int
    title: str = ""
    probability: Array | None = None


class MapRow(NamedTuple):
    """Maps side by side, over their own plane if they have one. All rows with the same unit share a colour scale."""

    label: str
    unit: str
    maps: Sequence[Map]
    plane: Plane | None = None


def maps_figure(plane: Plane, rows: Sequence[MapRow], names: Sequence[str], *, theme: Theme = LIGHT) -> Figure:
    """Rows of maps. The colour of a point is its task, its shape the class.

    A task's own points are larger; its decision boundary is dashed.
    """
    highest: dict[str, float] = {}
    for axes_plane, unit, panel in ((row.plane or plane, row.unit, panel) for row in rows for panel in row.maps):
        expected = (len(axes_plane.grid_y), len(axes_plane.grid_x))
        if panel.values.shape != expected:
            raise DataError(f"a map has shape {panel.values.shape}, but its axes have {expected} points")
        highest[unit] = max(highest.get(unit, 1e-6), float(np.nanmax(panel.values)))
    columns = max(len(row.maps) for row in rows)
    side, gap = (2.3, 0.12) if columns <= 3 else (1.75, 0.0)
    figure = new_figure(1.2 + side * columns, 0.8 + (side + gap) * len(rows))
    panels = figure.subplots(len(rows), columns, sharex=True, sharey=True, squeeze=False)
    for row, line in zip(rows, panels, strict=True):
        image: Any = None
        for panel, axes in zip(row.maps, line, strict=False):
            image = _map(axes, row.plane or plane, panel, highest[row.unit], theme)
        for axes in line[len(row.maps) :]:
            axes.set_visible(False)
        line[0].set_ylabel(f"{plain([row.label])[0]}\nx₂" if row.label else "x₂")
        bar = figure.colorbar(image, ax=list(line), shrink=0.9, aspect=22, pad=0.015)
        bar.set_label(row.unit, color=theme.ink)
        bar.ax.tick_params(colors=theme.muted, labelsize=9)
        bar.outline.set_visible(False)
    for axes in panels[-1]:
        axes.set_xlabel("x₁")
    _legend(
        figure, plane, names, theme, boundary=any(panel.probability is not None for row in rows for panel in row.maps)
    )
    return figure


def boundaries_figure(
    methods: Mapping[str, tuple[Plane, Array]], names: Sequence[str], *, theme: Theme = LIGHT
) -> Figure:
    """For each method, the training points of all tasks with each task's decision boundary.

    Probabilities are (T, C, rows, columns).
    """
    columns = min(len(methods), 3)
    rows = -(-len(methods) // columns)
    figure = new_figure(max(2.6 * columns, 4.6), 1.0 + 2.7 * rows)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes, (label, (plane, probability)) in zip(panels.flat, methods.items(), strict=False):
        style_axes(axes, theme, frame=("left", "bottom", "top", "right"))
        axes.set_aspect("equal")
        for task, (points, labels) in enumerate(plane.train):
            colour = TASK_COLOURS[task % len(TASK_COLOURS)]
            _boundary(axes, plane, probability[task], colour, width=1.6)
            for number, chosen in enumerate(_by_class(points, labels)):
                axes.scatter(
                    *chosen.T,
                    marker=MARKERS[number % 5],
                    s=22,
                    color=colour,
                    edgecolors=theme.paper,
                    linewidths=0.6,
                    zorder=3,
                )
        axes.set(xlim=plane.extent[:2], ylim=plane.extent[2:])
        axes.set_title(plain([label])[0])
    for axes in list(panels.flat)[len(methods) :]:
        axes.set_visible(False)
    for axes in panels[-1]:
        axes.set_xlabel("x₁")
    for axes in panels[:, 0]:
        axes.set_ylabel("x₂")
    _legend(figure, next(iter(methods.values()))[0], names, theme, boundary=True)
    return figure


def _map(axes: Axes, plane: Plane, panel: Map, highest: float, theme: Theme) -> Any:
    style_axes(axes, theme, frame=())
    axes.set_title(plain([panel.title])[0])
    colours: dict[str, Any] = {"cmap": UNCERTAINTY_COLOURS, "vmin": 0, "vmax": highest}
    image = axes.imshow(panel.values, origin="lower", extent=plane.extent, interpolation="bilinear", **colours)
    if panel.probability is not None:
        _boundary(axes, plane, panel.probability, "#ffffff", width=1.3, below="#14171c")
    for task, (points, labels) in enumerate(plane.train):
        own, colour = task == panel.task, TASK_COLOURS[task % len(TASK_COLOURS)]
        for number, chosen in enumerate(_by_class(points, labels)):
            size, edge, place = (22, "#ffffff", 4) if own else (11, "#14171c", 3)
            style: dict[str, Any] = {
                "marker": MARKERS[number % 5],
                "color": colour,
                "edgecolors": edge,
                "linewidths": 0.6,
            }
            axes.scatter(chosen[:, 0], chosen[:, 1], size, zorder=place, **style)
    axes.set(xlim=plane.extent[:2], ylim=plane.extent[2:])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, steps=[1, 5, 10]))
    return image


def _boundary(
    axes: Axes, plane: Plane, probability: Array, colour: str, *, width: float, below: str | None = None
) -> None:
    """A dashed line where the most likely class changes: where a class is as likely as the best of the others."""
    classes = [number for number, values in enumerate(probability) if np.any(values > 0)]
    for number in classes[1:] if len(classes) == 2 else classes if len(classes) > 2 else ():
        margin = probability[number] - np.delete(probability, number, axis=0).max(axis=0)  # (rows, columns)
        if margin.min() < 0 < margin.max():
            if below is not None:
                axes.contour(plane.grid_x, plane.grid_y, margin, [0.0], colors=below, linewidths=width + 0.7)
            axes.contour(
                plane.grid_x, plane.grid_y, margin, [0.0], colors=colour, linewidths=width, linestyles=[(0, (4, 2.5))]
            )


def _by_class(points: Array, labels: Array) -> list[Array]:
    return [points[labels == label] for label in np.unique(labels)]  # (n, 2) each


def _legend(figure: Figure, plane: Plane, names: Sequence[str], theme: Theme, *, boundary: bool) -> None:
    handles, texts = [], []
    if len(names) <= len(TASK_COLOURS):
        handles = [
            Line2D([], [], marker="o", linestyle="", color=TASK_COLOURS[task], markersize=6)
            for task in range(len(names))
        ]
        texts = plain(names)
    classes = max(len(np.unique(labels)) for _, labels in plane.train)
    for number in range(min(classes, len(MARKERS))):
        handles.append(
            Line2D([], [], marker=MARKERS[number], linestyle="", markerfacecolor="none", color=theme.ink, markersize=6)
        )
        texts.append(f"class {number + 1}")
    if boundary:
        handles.append(Line2D([], [], color=theme.muted, linewidth=1.3, linestyle=(0, (4, 2.5))))
        texts.append("decision boundary")
    style: dict[str, Any] = {
        "frameon": False,
        "labelcolor": theme.ink,
        "fontsize": 9,
        "handletextpad": 0.4,
        "columnspacing": 1.2,
    }
    figure.legend(handles, texts, loc="outside upper center", ncols=4 if figure.get_figwidth() < 6 else 7, **style)
