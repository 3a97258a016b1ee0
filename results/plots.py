"""Plots of the documents, drawn from the records in a light and a dark version (docs/images)."""

import json
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from metareplay.report.figures.canvas import (
    BLUE,
    DARK,
    GREEN,
    LIGHT,
    ORANGE,
    Theme,
    new_figure,
    save_figure,
    style_axes,
)
from metareplay.report.records import Record
from results.marks import marked_rows
from results.tables import definitions, render
from results.values import FOLDER

IMAGES = FOLDER.parent / "docs" / "images"
THEMES = {"light": LIGHT, "dark": DARK}
Data = list[list[Any]]
"""What a plot shows, as plain values."""


def paper_data(records: Mapping[str, Record]) -> Data:
    """Methods of SplitMNIST: accuracy with the task inferred, ours and the paper's, their errors, and the remark."""
    found: Data = []
    for row in marked_rows(records):
        if row.table.name == "split-mnist" and row.counts and not row.row.batch_wise:
            shown = [entry for entry in row.comparisons if entry.figure in ("ent", "softmax")]
            found += [[row.row.paper, one.ours, one.error, one.paper, one.paper_error, row.remark] for one in shown]
    return sorted(found, key=lambda one: -one[3])


def inference_data(records: Mapping[str, Record]) -> Data:
    """Benchmarks: right tasks by the paper's criterion, without a network, and by statistics."""
    found: Data = []
    for line in render(definitions()["task-inference"], records).lines:
        keys = ("right_task.ent", "right_task.variance", "right_task.pca", "right_task.stats")
        paper, variance, pca, stats = (None if (one := line.estimate(key)) is None else one.mean for key in keys)
        name = f"{line.labels['benchmark']}\n{line.labels['network']}"
        found.append([name, variance if paper is None else paper, pca, stats])
    return found


def steps_data(records: Mapping[str, Record]) -> Data:
    """Methods: a training step on one core, its floor, and the paper's own code, in fine-tuning steps."""
    found: Data = []
    for line in render(definitions()["steps"], records).lines:
        theirs = line.labels.get("the paper's code", "").split(";")[0]
        figures = [line.figures[key][0].value for key in ("one_core.mean", "floor.1")]
        found.append([line.labels["method"], *figures, float(theirs) if theirs else None])
    return found


def draw_paper(axes: Axes, data: Data, theme: Theme) -> None:
    """Two marks for each method; ours is hollow where a remark says that something differs."""
    places = range(len(data))
    for place, (_, ours, _, paper, _, _) in zip(places, data, strict=True):
        axes.plot([ours, paper], [place, place], color=theme.line, linewidth=1.5, zorder=1)
    errors = [error or 0.0 for _, _, _, _, error, _ in data]
    theirs = [paper for _, _, _, paper, _, _ in data]
    axes.errorbar(theirs, places, xerr=errors, fmt="D", color=ORANGE, markersize=6, label="the paper, 10 seeds")
    kinds = {"ours": ("", BLUE), "ours, something differs (see the table)": (None, theme.paper)}
    for label, (remark, fill) in kinds.items():
        chosen = [(one[1], place) for place, one in zip(places, data, strict=True) if (one[5] == "") == (remark == "")]
        if chosen:
            x, y = zip(*chosen, strict=True)
            axes.scatter(x, y, s=46, color=fill, edgecolors=BLUE, linewidths=1.6, zorder=3, label=label)
    axes.set(yticks=list(places), yticklabels=[one[0] for one in data], xlim=(0, 100))
    axes.invert_yaxis()
    axes.set_xlabel("accuracy with the task inferred, %")
    axes.legend(
        frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.42, 1.08), ncols=3, labelcolor=theme.ink
    )


def draw_inference(axes: Axes, data: Data, theme: Theme) -> None:
    """Three bars for each benchmark."""
    ways = (("the paper's criterion", ORANGE), ("no network (pca)", GREEN), ("statistics (default)", BLUE))
    for number, (label, colour) in enumerate(ways):
        places = [place + 0.26 * (number - 1) for place, one in enumerate(data) if one[1 + number] is not None]
        values = [one[1 + number] for one in data if one[1 + number] is not None]
        bars = axes.barh(places, values, height=0.24, color=colour, label=label)
        axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=8.5, color=theme.muted)
    axes.set(yticks=range(len(data)), yticklabels=[one[0] for one in data], xlim=(0, 112))
    axes.set_xticks(range(0, 101, 20))
    axes.invert_yaxis()
    axes.set_xlabel("inputs given to the right task, %")
    axes.legend(
        frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.45, 1.12), ncols=3, labelcolor=theme.ink
    )


def draw_steps(axes: Axes, data: Data, theme: Theme) -> None:
    """Bars for one core, marks for the floor and for the paper's code."""
    places = range(len(data))
    axes.barh(places, [ours for _, ours, _, _ in data], color=BLUE, height=0.55, label="metareplay")
    for place, (_, ours, _, _) in zip(places, data, strict=True):
        axes.text(0.53, place, f"{ours:.1f}", va="center", fontsize=9, color="#ffffff")
    x, y = zip(*((one[3], place) for place, one in zip(places, data, strict=True) if one[3] is not None), strict=True)
    axes.scatter(x, y, color=ORANGE, marker="D", s=34, zorder=3, label="the paper's code")
    floors = [floor for _, _, floor, _ in data]
    axes.scatter(floors, places, color=theme.ink, marker="|", s=240, linewidths=2, zorder=4, label="arithmetic floor")
    axes.set(yticks=list(places), yticklabels=[one[0] for one in data], xscale="log", xlim=(0.5, 400))
    axes.set_xticks(ticks := [1, 2, 5, 10, 20, 50, 100, 200], labels=[str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.invert_yaxis()
    axes.set_xlabel("one training step on one core, in steps of plain fine-tuning")
    axes.legend(frameon=False, fontsize=9, loc="lower right", labelcolor=theme.ink)


Plot = tuple[Callable[[Mapping[str, Record]], Data], Callable[[Axes, Data, Theme], None], float]
PLOTS: dict[str, Plot] = {
    "split-mnist-paper": (paper_data, draw_paper, 0.27),
    "task-inference": (inference_data, draw_inference, 0.8),
    "steps": (steps_data, draw_steps, 0.42),
}
"""By name: what is shown, how, and the height of a row in inches."""


def digest(data: Data) -> str:
    """What a plot shows, and how, in short."""
    return sha256(json.dumps([data, Path(__file__).read_text(encoding="utf-8")]).encode()).hexdigest()[:16]


def drawn_from(path: Path) -> str | None:
    """The digest that a plot carries."""
    found = re.search(r"<!-- drawn from (\w+) -->", path.read_text(encoding="utf-8")) if path.exists() else None
    return found[1] if found else None


def make_plots(records: Mapping[str, Record], folder: Path = IMAGES, plots: Mapping[str, Plot] = PLOTS) -> list[Path]:
    """Draw the plots whose figures have changed; returns their files."""
    written = []
    for name, (chosen, draw, height) in plots.items():
        data = chosen(records)
        for kind, theme in THEMES.items():
            path = folder / f"{name}-{kind}.svg"
            if drawn_from(path) == digest(data):
                continue
            figure = new_figure(7.6, 1.0 + height * len(data))
            axes = figure.subplots()
            style_axes(axes, theme, frame=("left",))
            draw(axes, data, theme)
            axes.grid(axis="x", color=theme.line, linewidth=0.6)
            axes.set_axisbelow(True)
            save_figure(figure, path)
            text = path.read_text(encoding="utf-8")
            path.write_text(f"{text.rstrip()}\n<!-- drawn from {digest(data)} -->\n", encoding="utf-8")
            written.append(path)
    return written
