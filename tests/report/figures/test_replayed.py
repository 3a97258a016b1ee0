"""Generated inputs after each task, as pictures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from metareplay.report.figures.canvas import LIGHT
from metareplay.report.figures.drawings import DRAWINGS
from metareplay.report.runs import find_runs, group_runs


def test_a_row_of_images_for_each_task(make_run: Callable[..., Path], make_results: Callable[..., Any]) -> None:
    folder = make_run("run", make_results())
    (folder / "replayed").mkdir()
    for task in range(2):
        save_file({"x": torch.rand(4, 1, 8, 8)}, folder / "replayed" / f"task-{task:03d}.safetensors")
    (drawing,) = DRAWINGS["replayed"].draw(group_runs(find_runs([folder]).runs), LIGHT)
    assert len(drawing.figure.axes) == 8
    assert [axes.texts[0].get_text().startswith("after ") for axes in drawing.figure.axes[::4]] == [True, True]
