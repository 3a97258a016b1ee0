"""The figures of a study: its history, each setting against what was reached, and trials after each task."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from metareplay.report.figures.canvas import BLUE, LIGHT, ORANGE, Theme, new_figure, plain, style_axes

Trials = Sequence[Mapping[str, Any]]
_COLUMNS = 3  # of small multiples
_LONGEST = 14  # characters of a value at an axis
_ROOM = 30  # characters side by side under a panel, with two between neighbours


def history_figure(trials: Trials, *, lower_is_better: bool, figure: str, theme: Theme = LIGHT) -> Figure:
    """What each trial reached, and the best so far."""
    drawn, axes = _single(7.4, 2.9, theme)
    finished = _finished(trials)
    x, y = [trial["number"] for trial in finished], [trial["value"] for trial in finished]
    best = np.minimum.accumulate(y) if lower_is_better else np.maximum.accumulate(y)
    axes.scatter(x, y, s=26, color=BLUE, linewidths=0, alpha=0.85, label="trial", zorder=3)
    beyond = [*x, *(last + 0.5 for last in x[-1:])]  # so that what the last trial reached is seen
    axes.step(beyond, [*best, *best[-1:]], where="post", color=ORANGE, linewidth=1.8, label="best so far", zorder=2)
    if pruned := [trial["number"] for trial in trials if trial["state"] == "pruned"]:
        low = axes.get_ylim()[0]
        axes.scatter(pruned, [low] * len(pruned), marker="|", s=40, color=theme.muted, label="pruned", zorder=1)
    if start := [trial for trial in finished if trial["recipe"]]:
        axes.axhline(start[0]["value"], color=theme.muted, linewidth=1, linestyle=":", label="settings at the start")
    axes.set_xlabel("trial")
    axes.set_ylabel(figure)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(axes, theme)
    return drawn


def settings_figure(
    trials: Trials, space: Mapping[str, Mapping[str, Any]], best: int, figure: str, *, theme: Theme = LIGHT
) -> Figure:
    """Each setting's value against what was reached, one panel for each; the best trial is marked."""
    keys, finished = list(space), _finished(trials)
    columns = 2 if len(keys) in (2, 4) else min(_COLUMNS, len(keys))
    rows = -(-len(keys) // columns)
    drawn = new_figure(7.4, 0.3 + 2.1 * rows)
    panels = drawn.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes, key in zip(panels, keys, strict=False):
        style_axes(axes, theme)
        _panel(axes, key, space[key], finished, best)
    for axes in panels[len(keys) :]:
        axes.set_visible(False)
    drawn.supylabel(figure, color=theme.ink, fontsize=10)
    return drawn


def after_tasks_figure(trials: Trials, best: int, figure: str, *, theme: Theme = LIGHT) -> Figure:
    """The mean score with the task given after each task, one line for each trial."""
    drawn, axes = _single(7.4, 2.9, theme)
    styles = {"finished": (BLUE, 0.35, 1.2), "pruned": (theme.muted, 0.45, 1.0)}
    for trial in trials:
        if trial["state"] in styles and trial["after_tasks"]:
            colour, alpha, width = styles[trial["state"]]
            tasks, scores = zip(*trial["after_tasks"], strict=True)
            one = trial["number"] == best
            colour, alpha, width = (ORANGE, 1.0, 2.2) if one else (colour, alpha, width)
            places = [task + 1 for task in tasks]
            axes.plot(
                places, scores, "o-", markersize=3, color=colour, alpha=alpha, linewidth=width, zorder=4 if one else 2
            )
    drawn_states = {trial["state"] for trial in trials if trial["number"] != best and trial["after_tasks"]}
    for label, colour in (("finished", BLUE), ("pruned", theme.muted), ("best", ORANGE)):
        if label in drawn_states or label == "best":
            axes.plot([], [], color=colour, label=label)
    axes.set_xlabel("after task")
    axes.set_ylabel(figure)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(axes, theme)
    return drawn


def _panel(axes: Axes, key: str, entry: Mapping[str, Any], trials: Trials, best: int) -> None:
    """One setting: numbers on an axis of numbers, anything else in the order of the space."""
    shown = [trial for trial in trials if key in trial["settings"]]
    values = [trial["settings"][key] for trial in shown]
    if entry["kind"] == "values":
        labels = [json.dumps(value) for value in entry["values"]]
        x: list[float] = [labels.index(json.dumps(value)) for value in values]
        axes.set_xticks(range(len(labels)), plain([_short(label) for label in labels]))
        axes.set_xlim(-0.5, len(labels) - 0.5)
        if sum(map(len, map(_short, labels))) + 2 * len(labels) > _ROOM:
            axes.tick_params(axis="x", labelrotation=35)
    else:
        x = [float(value) for value in values]
        if entry.get("log"):
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(numticks=5))
            axes.xaxis.set_minor_formatter(NullFormatter())
            edge = (entry["high"] / entry["low"]) ** 0.04
            axes.set_xlim(entry["low"] / edge, entry["high"] * edge)
    y = [trial["value"] for trial in shown]
    axes.scatter(x, y, s=20, color=BLUE, linewidths=0, alpha=0.7, zorder=2)
    for place, trial in enumerate(shown):
        if trial["number"] == best:
            axes.scatter(x[place], y[place], s=48, color=ORANGE, linewidths=0, zorder=3)
    axes.set_title(key, fontsize=9.5)


def _short(label: str) -> str:
    words = label.strip('"').replace(" ", "")
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"


def _finished(trials: Trials) -> list[Mapping[str, Any]]:
    return [trial for trial in trials if trial["state"] == "finished" and trial["value"] is not None]


def _single(width: float, height: float, theme: Theme) -> tuple[Figure, Axes]:
    drawn = new_figure(width, height)
    axes = drawn.subplots()
    style_axes(axes, theme)
    return drawn, axes


def _legend(axes: Axes, theme: Theme) -> None:
    legend = axes.legend(frameon=False, fontsize=9, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    for text in legend.get_texts():
        text.set_color(theme.ink)
