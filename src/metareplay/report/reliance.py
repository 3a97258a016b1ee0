"""How far inferred tasks can be relied on: probabilities of tasks, unknown inputs, what is stored about the tasks."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metareplay.evaluation.strangers import AMBIGUOUS
from metareplay.experiments.results import Results
from metareplay.report.base import Estimate, estimate, mean_by_task, mean_matrix, show, show_bytes, show_number
from metareplay.report.criteria import headline_criterion

ByTask = NDArray[np.float64]
Figures = Callable[[Results], Sequence[float]]


class Column(NamedTuple):
    """A figure of every task: its heading, its values (T,), what it means."""

    heading: str
    values: ByTask
    meaning: str
    show: Callable[[float], str] = partial(show_number, kind="percent")


def task_calibration_error(results: Results) -> float | None:
    """Expected calibration error of the tasks' probabilities, in percent."""
    return None if results.task_probabilities is None else results.task_probabilities.calibration_error


def label_calibration_error(results: Results) -> float | None:
    """Of the probabilities of labels, with the task inferred, in percent."""
    return None if results.answers is None else results.answers.calibration_error


def interval_coverage(results: Results) -> float | None:
    """Targets within their prediction intervals, with the task inferred if it can be, in percent."""
    answers = results.answers
    if answers is None:
        return None
    return answers.coverage_given if answers.coverage is None else answers.coverage


def false_rejections(results: Results) -> float | None:
    """Test inputs taken for unknown, in percent, mean over tasks."""
    shares = results.unknown.false_rejections if results.unknown else []
    return sum(shares) / len(shares) if shares else None


def bytes_per_task(results: Results) -> float | None:
    """Mean size of what is stored about a task."""
    sizes = results.statistics.bytes_by_task if results.statistics else []
    return sum(sizes) / len(sizes) if sizes else None


def aurocs(runs: Sequence[Results]) -> dict[str, Estimate]:
    """Test inputs against unknown inputs, by kind."""
    kinds = dict.fromkeys(kind for run in runs for kind in (run.unknown.auroc if run.unknown else {}))
    values = {kind: estimate(runs, _auroc(kind)) for kind in kinds}
    return {kind: value for kind, value in values.items() if value is not None}


def clear_aurocs(runs: Sequence[Results]) -> dict[str, Estimate]:
    """The same, without kinds that may be ordinary inputs."""
    return {kind: value for kind, value in aurocs(runs).items() if kind not in AMBIGUOUS}


def reliance_line(runs: Sequence[Results]) -> str | None:
    """Calibration of labels, intervals and tasks, false rejections and AUROC in one line; None if there are none."""
    parts = []
    labels, inside = estimate(runs, label_calibration_error), estimate(runs, interval_coverage)
    if labels is not None:
        parts.append(f"calibration error of labels {show(labels, 'percent')} %")
    if inside is not None:
        known = all(run.answers is None or run.answers.coverage is None for run in runs)
        how = "task known" if known else "task inferred"
        parts.append(f"{show(inside, 'percent')} % of targets within their intervals ({how})")
    calibration, rejected = estimate(runs, task_calibration_error), estimate(runs, false_rejections)
    if calibration is not None:
        parts.append(f"calibration error of task probabilities {show(calibration, 'percent')} %")
    if rejected is not None:
        parts.append(f"false rejections {show(rejected, 'percent')} %")
    if by_kind := aurocs(runs):
        parts.append("AUROC against " + ", ".join(f"{kind} {value.mean:.3f}" for kind, value in by_kind.items()))
    return "; ".join(parts) or None


def columns_by_task(runs: Sequence[Results]) -> list[Column]:
    """What there is to say about each task, means over seeds; only figures that some run has."""
    tasks, name = runs[0].num_tasks, headline_criterion(runs)
    confusion = mean_matrix([(run.task_confusion or {}).get(name or "") for run in runs], tasks)
    columns = []
    if confusion is not None:
        meaning = f"test inputs given to their own task, by {name}"
        columns.append(Column("Right task, %", np.diagonal(confusion), meaning))
    for numbers, column in _COLUMNS:
        values = mean_by_task([numbers(run) for run in runs], tasks)
        if values is not None and np.isfinite(values).any():
            columns.append(column._replace(values=values))
    return columns


def _auroc(kind: str) -> Callable[[Results], float | None]:
    return lambda results: results.unknown.auroc.get(kind) if results.unknown else None


def _rejections(results: Results) -> Sequence[float]:
    return results.unknown.false_rejections if results.unknown else []


def _brier(results: Results) -> Sequence[float]:
    return results.task_probabilities.brier_by_task if results.task_probabilities else []


def _sizes(results: Results) -> Sequence[float]:
    return results.statistics.bytes_by_task if results.statistics else []


def _moved(results: Results) -> Sequence[float]:
    return [_largest(drift, 0) for drift in results.statistics.drift] if results.statistics else []


def _left(results: Results) -> Sequence[float]:
    return [_largest(drift, 1) for drift in results.statistics.drift] if results.statistics else []


def _largest(drift: Mapping[str, Sequence[float]], which: int) -> float:
    """Over the layers, in percent; NaN for a network that is not followed."""
    return 100 * max(values[which] for values in drift.values()) if drift else float("nan")


_EMPTY: ByTask = np.empty(0)
_COLUMNS: tuple[tuple[Figures, Column], ...] = (
    (_rejections, Column("Rejected, %", _EMPTY, "test inputs taken for unknown")),
    (
        _brier,
        Column("Brier score", _EMPTY, "squared distance of the tasks' probabilities to the truth", "{:.4f}".format),
    ),
    (_sizes, Column("Statistics", _EMPTY, "what is stored about the task, never examples", show_bytes)),
    (_moved, Column("Moved, %", _EMPTY, "how far later tasks changed its network's features, of their variance")),
    (
        _left,
        Column("Not followed, %", _EMPTY, "what the statistics could not follow of it (both: the layer with most)"),
    ),
)
