"""Loss and uncertainty over all training iterations, and the thresholds that would find the boundaries of tasks [sm:fig:task_boundary]."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from metareplay.report.canvas import BLUE, LIGHT, VERMILION, Theme, new_figure, style_axes

Array = npt.NDArray[Any]
LABELS = ("loss in nats", "entropy in nats")
DRAWN = 4000
"""Points of a line; a longer signal is thinned, each point then the highest of its neighbours, so that no peak is lost."""


def boundary_figure(signals: Sequence[Array], bounds: Sequence[tuple[float, float]], window: int, *, theme: Theme = LIGHT) -> Figure:
    """Both signals of some runs, each (T, I, 2); ``bounds`` are the lowest value at a boundary and the highest elsewhere, per signal."""
    figure = new_figure(7.6, 4.4)
    panels = figure.subplots(2, 1, sharex=True)
    for number, axes in enumerate(panels):
        style_axes(axes, theme)
        low, high = sorted(bounds[number])
        works = bounds[number][0] > bounds[number][1]
        if works:
            axes.axhspan(low, high, color=theme.muted, alpha=0.18, linewidth=0)
        for task in range(1, signals[0].shape[0]):
            axes.axvline(task * signals[0].shape[1], color=theme.line, linewidth=0.8, zorder=0)
        for run in signals:
            _line(axes, run[..., number], window)
        axes.axhline(bounds[number][0], color=VERMILION, linewidth=1.1, linestyle=(0, (5, 3)))
        axes.axhline(bounds[number][1], color=theme.ink, linewidth=1.1, linestyle=(0, (1, 2)))
        axes.set_ylabel(LABELS[number])
        axes.set_ylim(bottom=0)
    span = signals[0].shape[0] * signals[0].shape[1]
    panels[1].set_xlim(0, span)
    panels[1].set_xlabel("training iteration, all tasks one after another")
    handles = [panels[0].plot([], [], color=BLUE)[0], *(panels[0].lines[-3:-1])]
    names = ("mean over a window", "lowest at a boundary", "highest elsewhere")
    figure.legend(handles, names, loc="outside upper center", ncols=3, frameon=False, labelcolor=theme.ink, fontsize=9)
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
