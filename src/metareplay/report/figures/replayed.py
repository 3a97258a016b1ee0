"""The figure of generated inputs: what a model with generative replay would replay after each task."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from metareplay.experiments.replayed import REPLAYED
from metareplay.report.base import task_names
from metareplay.report.figures.base import Drawing
from metareplay.report.figures.canvas import LIGHT, Theme, new_figure, plain
from metareplay.report.runs import Group, read_arrays

MOST_TASKS = 10
"""Tasks that are shown; of more, some that are spread evenly."""


def replayed_figure(images: Sequence[NDArray[np.floating]], names: Sequence[str], *, theme: Theme = LIGHT) -> Figure:
    """A row per task: images (N, C, H, W) that were generated after it, in grey or in colour."""
    count = max(len(row) for row in images)
    figure = new_figure(1.2 + 0.62 * count, 0.15 + 0.66 * len(images))
    panels = figure.subplots(len(images), count, squeeze=False)
    for line, row, name in zip(panels, images, plain(names), strict=True):
        for axes in line:
            axes.set_axis_off()
        for axes, image in zip(line, row, strict=False):
            low, high = min(0.0, float(row.min())), max(1.0, float(row.max()))
            shown = ((image - low) / (high - low)).transpose(1, 2, 0)  # (C, H, W) -> (H, W, C)
            axes.imshow(shown if shown.shape[2] == 3 else shown[..., 0], cmap="gray_r", vmin=0, vmax=1)
        line[0].text(
            -0.15, 0.5, name, transform=line[0].transAxes, ha="right", va="center", color=theme.ink, fontsize=9
        )
    return figure


def replayed(groups: Sequence[Group], theme: Theme) -> Iterator[Drawing]:
    """Generated inputs after each task, of the first seed."""
    group = groups[0]
    folder, names = group.runs[0].folder / REPLAYED, task_names(group.first)
    files = sorted(folder.glob("task-*.safetensors")) if folder.is_dir() else []
    arrays = [read for file in files if (read := read_arrays(file)) is not None and "x" in read]
    if not arrays or len(arrays) > len(names):
        return
    chosen = np.unique(np.linspace(0, len(arrays) - 1, min(len(arrays), MOST_TASKS)).round().astype(int))
    drawn = replayed_figure([arrays[i]["x"] for i in chosen], [f"after {names[i]}" for i in chosen], theme=theme)
    caption = "Inputs that the model generates after each task, at random: what it replays of the tasks up to then. "
    caption += "None of them is a stored example."
    yield Drawing("replayed", "Generated inputs", caption, drawn, wide=True)
