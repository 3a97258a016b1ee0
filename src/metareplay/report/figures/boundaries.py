"""Loss and uncertainty of all iterations, and thresholds that detect task boundaries [sm:fig:task_boundary]."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from metareplay.evaluation.boundaries import WINDOW, Thresholds, grace_period
from metareplay.report.figures.canvas import BLUE, LIGHT, VERMILION, Theme, new_figure, style_axes

Array = npt.NDArray[Any]
DRAWN = 4000
"""Points of a line; a longer signal is thinned to the maxima of neighbouring points, so that no peak is lost."""


def boundary_figure(
    signals: Sequence[Array],
    bounds: Sequence[Thresholds],
    *,
    labels: Sequence[str] = ("loss in nats", "entropy in nats"),
    theme: Theme = LIGHT,
) -> Figure:
    """Both signals of some runs, each (T, I, 2), and the bounds on the threshold of each signal."""
    tasks, iterations, _ = signals[0].shape
    figure = new_figure(7.6, 4.8)
    panels = figure.subplots(2, 1, sharex=True)
    for number, (axes, bound, label) in enumerate(zip(panels, bounds, labels, strict=True)):
        style_axes(axes, theme)
        if bound.viable_share > 0:
            axes.axhspan(bound.elsewhere, bound.at_boundaries, color=theme.muted, alpha=0.18, linewidth=0)
        for task in range(1, tasks):
            axes.axvline(task * iterations, color=theme.line, linewidth=0.8, zorder=0)
        for run in signals:
            _line(axes, run[..., number], WINDOW)
        axes.axhline(bound.at_boundaries, color=VERMILION, linewidth=1.1, linestyle=(0, (5, 3)))
        axes.axhline(bound.elsewhere, color=theme.ink, linewidth=1.1, linestyle=(0, (1, 2)))
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        share = (
            f"thresholds without error: {bound.viable_share:.1f} % of the range"
            if bound.viable_share > 0
            else "no threshold is without error"
        )
        axes.set_title(share, loc="left", color=theme.ink, fontsize=10)
    panels[1].set_xlim(0, tasks * iterations)
    panels[1].set_xlabel("training iteration, all tasks one after another")
    figure.align_ylabels(list(panels))
    handles = [panels[0].plot([], [], color=BLUE)[0], *(panels[0].lines[-3:-1])]
    grace = grace_period(iterations)
    names = [
        f"mean over {min(WINDOW, iterations)} iterations",
        "lowest at a boundary",
        f"highest elsewhere, after a grace period of {grace} iterations",
    ]
    if any(bound.viable_share > 0 for bound in bounds):
        handles.append(Patch(color=theme.muted, alpha=0.18, linewidth=0))
        names.append("thresholds without error")
    figure.legend(handles, names, loc="outside upper center", ncols=2, frameon=False, labelcolor=theme.ink, fontsize=9)
    return figure


def _line(axes: Axes, signal: Array, window: int) -> None:
    """The means over windows inside each task: (T, I)."""
    window = min(window, signal.shape[1])
    kernel = np.ones(window) / window
    means = np.stack([np.convolve(row, kernel, mode="valid") for row in signal])  # (T, I - window + 1)
    x = np.arange(signal.shape[0])[:, None] * signal.shape[1] + np.arange(window, signal.shape[1] + 1)
    step = max(1, means.shape[1] * len(means) // DRAWN)
    whole = means.shape[1] // step * step
    high = means[:, :whole].reshape(len(means), -1, step).max(-1)  # (T, points)
    axes.plot(x[:, :whole:step].ravel(), high.ravel(), color=BLUE, linewidth=0.9, alpha=0.8)
