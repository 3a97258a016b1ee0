"""The pictures of one method: drawings with a title and a sentence on how to read them."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from metareplay.errors import DataError
from metareplay.report import html
from metareplay.report.base import CRITERIA, fine_tuned_row, mean_matrix, task_names
from metareplay.report.canvas import PAGE, inline_svg
from metareplay.report.figures import confusion_figure, learning_curves_figure, matrix_figure
from metareplay.report.predictive_figures import modes_figure, regression_figure
from metareplay.report.runs import Group, Tensors


def pictures(group: Group, prefix: str) -> str:
    """All drawings for one method, those that belong side by side in a grid."""
    names = task_names(group.first)
    several = " Mean over seeds." if len(group.runs) > 1 else ""
    parts = []
    tuned = fine_tuned_row(group.results) is not None
    stages = [*names, "fine-tuning"] if tuned else names
    curves = learning_curves_figure([run.history for run in group.runs], stages, theme=PAGE)
    if curves is not None:
        lines = " One line per seed." if len(group.runs) > 1 else ""
        caption = f"Each term of the loss while the tasks are learned in turn.{lines}"
        parts.append(_drawing(curves, f"{prefix}-curves", "Learning curves", caption, wide=True))
    small = []
    matrix = mean_matrix([run.get("tgiven_matrix") for run in group.results], len(names))
    if matrix is not None:
        what = "Squared error" if group.regression else "Accuracy in %"
        drawing = matrix_figure(matrix, names, error=group.regression, theme=PAGE)
        caption = f"{what} on each task (columns) after each task (rows){', before fine-tuning' if tuned else ''}, task known.{several}"
        small.append(_drawing(drawing, f"{prefix}-matrix", "Memory over time", caption))
    small += _confusions(group, names, prefix, several)
    parts.append(f'<div class="figures">{"".join(small)}</div>' if small else "")
    content = "".join(parts)
    return f"<h3>Pictures</h3>{content}" if content else ""


def predictive_picture(group: Group, prefix: str) -> str:
    """The picture of a toy problem, if a run kept what it needs."""
    names = task_names(group.first)
    for run in group.runs:
        arrays = run.predictive()
        if arrays is None:
            continue
        seed = f" Seed {run.results['seed']}." if len(group.runs) > 1 else ""
        try:
            train = [(arrays[f"train_x_{task}"], arrays[f"train_y_{task}"]) for task in range(len(names))]
            if "entropy" in arrays:
                drawing = _modes(arrays, train, names)
                caption = "Entropy of the final prediction of each task over the plane; the task's own training points are filled."
                return _drawing(drawing, f"{prefix}-modes", "Uncertainty maps", caption + seed, wide=True)
            drawing = _regression(arrays, train, names)
            caption = "Mean and one standard deviation of each task's final prediction; dots are training points"
            caption += ", dashes the truth." if "truth" in arrays else "."
            return _drawing(drawing, f"{prefix}-regression", "Predictions", caption + seed, wide=True)
        except KeyError as error:
            path = run.folder / "predictive.safetensors"
            raise DataError(f"{path} lacks {error}; delete the file to make the report without its figure") from error
    return ""


def _confusions(group: Group, names: Sequence[str], prefix: str, several: str) -> Iterator[str]:
    for name in [*CRITERIA, *sorted({key for run in group.results for key in run.get("task_confusion") or {}} - set(CRITERIA))]:
        shares = mean_matrix([(run.get("task_confusion") or {}).get(name) for run in group.results], len(names))
        if shares is not None:
            drawing = confusion_figure(shares, names, theme=PAGE)
            caption = f"Share in % of each task's inputs (rows) given to each task (columns).{several}"
            yield _drawing(drawing, f"{prefix}-confusion-{name.encode().hex()}", f"Tasks inferred by {name}", caption)


def _regression(arrays: Tensors, train: list[tuple[Any, Any]], names: Sequence[str]) -> Figure:
    points = [(np.ravel(x), np.ravel(y)) for x, y in train]
    return regression_figure(np.ravel(arrays["x"]), arrays["mean"], arrays["std"], points, names, truth=arrays.get("truth"), theme=PAGE)


def _modes(arrays: Tensors, train: list[tuple[Any, Any]], names: Sequence[str]) -> Figure:
    points = [(x, np.ravel(y)) for x, y in train]
    return modes_figure(arrays["grid_x"], arrays["grid_y"], arrays["entropy"], points, names, theme=PAGE)


def _drawing(drawing: Figure, name: str, title: str, caption: str, *, wide: bool = False) -> str:
    return html.figure(inline_svg(drawing, name, escape(f"{title}. {caption}")), title, caption, wide=wide)
