"""Figures of uncertainty: about own inputs, other tasks' inputs and unknown ones; confidence against accuracy."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from metareplay.report.figures.canvas import BLUE, LIGHT, VERMILION, Theme, new_figure, plain, style_axes

Array = NDArray[np.floating]

UNITS = {
    "ent": "entropy in nats",
    "conf": "1 − highest probability",
    "agree": "std. dev. of probabilities",
    "ku": "knowledge uncertainty in nats",
    "variance": "predictive variance",
}
"""What the scores of each criterion measure."""
THRESHOLD = 1.0
"""An input whose strangeness is above this is taken for unknown."""
_MOST_BINS = 40


def uncertainty_figure(edges: Array, counts: Mapping[str, Array], *, theme: Theme = LIGHT) -> Figure:
    """By criterion, how uncertain posteriors are about inputs of their own task and of other tasks.

    ``counts[criterion]`` is (2, bins): own inputs, other tasks' inputs, each shown as shares; ``edges`` is (bins + 1,).
    """
    columns = min(len(counts), 2)
    rows = -(-len(counts) // columns)
    figure = new_figure(3.7 * columns, 0.5 + 2.2 * rows)
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes, (name, both) in zip(panels.flat, counts.items(), strict=False):
        _histogram(axes, edges, both, theme)
        axes.set_title(f"{plain([name])[0]}: own task surer in {100 * share_below(both):.1f} %")
        axes.set_xlabel(UNITS.get(name, name))
        style_axes(axes, theme)
    for axes in list(panels.flat)[len(counts) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel("inputs in %")
    figure.align_ylabels(list(panels[:, 0]))
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=2, frameon=False, labelcolor=theme.ink, fontsize=10
    )
    return figure


def reliability_figure(rows: Array, *, theme: Theme = LIGHT) -> Figure:
    """Confidence against accuracy: ``rows`` (3, bins) are inputs, summed confidence and correct answers per bin."""
    inputs, confidence, correct = rows
    bins = rows.shape[1]
    known = inputs > 0
    accuracy = 100 * correct[known] / inputs[known]
    figure = new_figure(3.7, 3.9)
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    places, width = (np.flatnonzero(known) + 0.5) / bins, 0.9 / bins
    axes.bar(places, accuracy, width, color=BLUE, alpha=0.75, label="accuracy")
    means = 100 * confidence[known] / inputs[known]
    axes.hlines(means, places - width / 2, places + width / 2, color=VERMILION, linewidth=2.4, label="mean confidence")
    shares = 100 * inputs[known] / inputs.sum()
    below.bar(places, shares, width, color=theme.muted)
    below.set_yscale("log")
    below.set_ylim(float(shares.min()) / 2, 150)
    below.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    below.yaxis.set_minor_locator(NullLocator())
    low = int(np.flatnonzero(known)[0]) / bins
    axes.set_xlim(min(low, 0.9) - 0.01, 1.01)
    axes.set_ylim(0, 103)
    axes.set_ylabel("accuracy in %")
    below.set(ylabel="inputs\nin %", xlabel="confidence (highest class probability)")
    for panel in (axes, below):
        style_axes(panel, theme)
    figure.align_ylabels([axes, below])
    figure.legend(loc="outside upper center", ncols=2, frameon=False, labelcolor=theme.ink, fontsize=9)
    return figure


def strangeness_figure(
    edges: Array, known: Array, kinds: Mapping[str, tuple[Array, float]], *, theme: Theme = LIGHT
) -> Figure:
    """How strange test inputs and unknown inputs are, by kind: ``kinds[kind]`` is counts (bins,) and AUROC.

    Counts are shown as shares; what is above ``THRESHOLD`` is taken for unknown. ``edges`` is (bins + 1,).
    """
    columns = min(len(kinds), 2)
    rows = -(-len(kinds) // columns)
    figure = new_figure(3.7 * columns, 0.6 + 1.85 * rows)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes, (kind, (strange, auroc)) in zip(panels.flat, kinds.items(), strict=False):
        for counts, label, colour, dashes in (
            (known, "test inputs", BLUE, "-"),
            (strange, "unknown inputs", VERMILION, (0, (5, 1.5))),
        ):
            shares = 100 * counts / counts.sum()
            axes.stairs(shares, edges, color=colour, fill=True, alpha=0.25)
            axes.stairs(shares, edges, color=colour, linewidth=1.4, label=label, linestyle=dashes)
        axes.axvline(THRESHOLD, color=theme.ink, linewidth=1.2, linestyle=(0, (1, 1.5)), label="taken for unknown →")
        rejected = 100 * strange[edges[:-1] >= THRESHOLD].sum() / strange.sum()
        axes.set_title(f"{plain([kind])[0]}: AUROC {auroc:.3f}, {rejected:.1f} % rejected")
        style_axes(axes, theme)
    highest = max(float(100 * counts.max() / counts.sum()) for counts in (known, *(pair[0] for pair in kinds.values())))
    panels[0, 0].set(xlim=(edges[0], edges[-1]), ylim=(0, 1.05 * highest))  # for all panels
    for axes in list(panels.flat)[len(kinds) :]:
        axes.set_visible(False)
    for column, axes in enumerate(panels[-1]):
        last = axes if axes.get_visible() else panels[-2][column]  # the lowest panel of the column
        last.set_xlabel("strangeness")
        last.tick_params(labelbottom=True)
    for axes in panels[:, 0]:
        axes.set_ylabel("inputs in %")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, labelcolor=theme.ink, fontsize=9)
    return figure


def share_below(counts: Array) -> float:
    """How often an input of the first kind scores lower than one of the second; ties, also in a bin, count half."""
    own, other = counts / counts.sum(axis=1, keepdims=True)  # (2, bins) -> (bins,), (bins,)
    above = other.sum() - np.cumsum(other)  # the share in higher bins
    return float((own * (above + other / 2)).sum())


def _histogram(axes: Axes, edges: Array, both: Array, theme: Theme) -> None:
    edges, both = _coarser(edges, both)
    used = np.flatnonzero(both.sum(axis=0))
    shown = slice(int(used[0]), int(used[-1]) + 1)
    limits = edges[shown.start : shown.stop + 1]  # (shown bins + 1,)
    for row, label, colour in ((0, "own task", BLUE), (1, "other tasks", VERMILION)):
        shares = 100 * both[row, shown] / both[row].sum()
        axes.stairs(shares, limits, color=colour, fill=True, alpha=0.25)
        axes.stairs(
            shares, limits, color=colour, linewidth=1.4, label=label, linestyle="-" if row == 0 else (0, (5, 1.5))
        )
    axes.set_xscale("log")
    axes.set_xlim(limits[0], limits[-1])
    span = limits[-1] / limits[0]
    if span > 300:
        axes.xaxis.set_major_locator(LogLocator(numticks=6))
    else:  # few enough that labels do not overlap
        locator = (
            MaxNLocator(4) if span < 5 else LogLocator(subs=(1.0, 2.0, 5.0) if span < 20 else (1.0, 3.0), numticks=6)
        )
        axes.xaxis.set_major_locator(locator)
    if limits[0] > 3e-4:
        axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(bottom=0)


def _coarser(edges: Array, both: Array) -> tuple[Array, Array]:
    """Merge neighbouring bins while there are so many that they would show mostly noise."""
    while np.count_nonzero(both.sum(axis=0)) > _MOST_BINS and both.shape[1] % 2 == 0:
        edges, both = edges[::2], both.reshape(2, -1, 2).sum(axis=2)  # (2, bins) -> (2, bins / 2)
    return edges, both
