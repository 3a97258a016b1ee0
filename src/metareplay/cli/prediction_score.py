"""How good predictions are, where the file of inputs says what is right."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from metareplay.data.cells import text_column
from metareplay.data.labels import Labels, spelled
from metareplay.errors import DataError

if TYPE_CHECKING:
    from metareplay.estimators import ClassPrediction, RealPrediction
    from metareplay.estimators.loading import AnyEstimator

NAMED = 10
"""At most this many tasks that were not learned are named."""


def score_lines(
    estimator: "AnyEstimator", answer: "ClassPrediction | RealPrediction", labels: Labels, tasks: Labels | None
) -> list[str]:
    """Accuracy or error, the column that it is computed from, and the share of right tasks if the file names them."""
    from metareplay.estimators import ClassPrediction

    rows = np.array([label is not None for label in labels.values])
    if not rows.any():
        raise DataError(f"--score: no row has a label in {labels.source}; fill them in, or leave --score out")
    if isinstance(answer, ClassPrediction):
        if labels.targets is not None:
            raise DataError(
                f"--score: {labels.source} has {labels.targets.shape[1]} values for each input, but this model "
                "predicts one label; leave --score out"
            )
        known = {spelled(label) for task in estimator.tasks for label in task.classes}
        lines = [_accuracy(answer, labels, rows), *_unknown_labels(labels, known)]
    else:
        lines = _errors(answer, labels, rows)
    if not rows.all():
        lines.append(f"left out, without a label: {_rows(int((~rows).sum()))}")
    if tasks is not None and not (estimator.learner is not None and estimator.learner.predictor.one_answer):
        lines += _right_tasks(answer, tasks, estimator.task_names)
    return lines


def _right_tasks(answer: "ClassPrediction | RealPrediction", tasks: Labels, learned: Sequence[str]) -> list[str]:
    """The share of right tasks among the rows of learned tasks, and the tasks that were not learned."""
    pairs = [pair for pair in zip(tasks.values, answer.task, strict=True) if pair[0] in learned]
    lines = []
    if pairs:
        right = np.mean([given == chosen for given, chosen in pairs])
        lines.append(f"right task: {100 * right:.2f} % of {_rows(len(pairs))} (tasks: {tasks.source})")
    other = [task for task in tasks.values if task is not None and task not in learned]
    if other:
        names = list(dict.fromkeys(other))
        named = f"{', '.join(names[:NAMED])}{', ...' if len(names) > NAMED else ''}"
        were = "was" if len(names) == 1 else "were"
        lines.append(f"not counted for the right task: {_rows(len(other))} ({named} {were} not learned)")
    if missing := sum(task is None for task in tasks.values):
        lines.append(f"not counted for the right task, without a task: {_rows(missing)}")
    return lines


def unknown_lines(known: Sequence[np.ndarray | None]) -> list[str]:
    """How many rows are unlike all that the model has learned; nothing if there are none, or if that is not judged."""
    judged = np.concatenate([np.ones(0, dtype=bool), *(part for part in known if part is not None)])  # (N,)
    count = int((~judged).sum())
    if not count:
        return []
    share = f"{100 * count / len(judged):.1f} %"
    return [f"unknown: {count} of {_rows(len(judged))} ({share}): unlike anything the model has learned"]


def _accuracy(answer: "ClassPrediction", labels: Labels, rows: np.ndarray) -> str:
    pairs = zip(answer.labels.tolist(), labels.values, strict=True)
    right = np.array([spelled(predicted) == given for predicted, given in pairs])[rows]
    return f"accuracy: {100 * right.mean():.2f} % of {_rows(len(right))} (labels: {labels.source})"


def _unknown_labels(labels: Labels, known: set[str]) -> list[str]:
    unknown = [label for label in labels.values if label is not None and label not in known]
    if not unknown:
        return []
    return [f"counted as wrong, with a label that was not learned, e.g. {unknown[0]!r}: {_rows(len(unknown))}"]


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _errors(answer: "RealPrediction", labels: Labels, rows: np.ndarray) -> list[str]:
    """One line for each target."""
    given = _single(labels) if labels.targets is None else labels.targets  # (N, D)
    means, lower, upper = (
        None if values is None else values.reshape(len(rows), -1)[rows]  # (N,) or (N, D) -> (n, D)
        for values in (answer.mean, answer.lower, answer.upper)
    )
    assert means is not None
    if given.shape[1] != means.shape[1]:
        raise DataError(
            f"--score: {labels.source} has {given.shape[1]} target(s) for each input, but this model predicts "
            f"{means.shape[1]}; leave --score out, or give a .npz file whose y has as many columns"
        )
    lines = []
    for number, (target, mean) in enumerate(zip(given.T, means.T, strict=True)):
        squared, spread = float(((target - mean) ** 2).mean()), float(target.var())
        which = f" of target {number + 1}" if len(means.T) > 1 else ""
        r2 = f", R2 {1 - squared / spread:.4f}" if spread > 0 else ""
        inside = ""
        if lower is not None and upper is not None:
            share = np.mean((lower[:, number] <= target) & (target <= upper[:, number]))
            inside = f"; {100 * share:.1f} % between lower and upper"
        error = f"root mean squared error{which}: {squared**0.5:.6g}{r2}"
        lines.append(f"{error} of {_rows(len(target))} (labels: {labels.source}){inside}")
    return lines


def _single(labels: Labels) -> np.ndarray:
    """The labels that there are, as numbers (n, 1)."""
    present = [label for label in labels.values if label is not None]
    found = text_column(labels.source, present, str)  # also $5.00
    if found.kind != "number":
        raise DataError(f"--score: the labels in {labels.source} are not numbers (such as {present[0]!r})")
    return found.values.astype(np.float64)[:, None]
