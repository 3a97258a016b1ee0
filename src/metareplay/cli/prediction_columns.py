"""Predictions as named columns: the one place that decides what ``metareplay predict`` writes for each input."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from metareplay.data.labels import distinct_names
from metareplay.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from metareplay.estimators import ClassPrediction, RealPrediction


class OutputColumn(NamedTuple):
    """A column of the output: one value per input."""

    name: str
    values: Sequence[Any]
    exact: bool = False
    """Copied as it is, also as text; other numbers are rounded to six digits in CSV."""


Columns = Sequence[OutputColumn]
PROBABILITIES = ("best", "all")
"""Write the probability of the predicted label only, or of every label."""


def check_probabilities(choice: str) -> None:
    """Refuse an unknown choice."""
    if choice not in PROBABILITIES:
        raise ConfigError(f"--probabilities {choice!r} is unknown. Choose one of {', '.join(PROBABILITIES)}")


def answer_columns(
    answer: "ClassPrediction | RealPrediction",
    classes: Sequence[Hashable],
    tasks: Sequence[str] = (),
    *,
    every_probability: bool = False,
) -> list[OutputColumn]:
    """A prediction's columns; ``classes`` and ``tasks`` name the columns of its probabilities."""
    from metareplay.estimators import ClassPrediction

    if not isinstance(answer, ClassPrediction):
        real = {"mean": answer.mean, "std": answer.std, "lower": answer.lower, "upper": answer.upper}
        return [
            *(column for name, values in real.items() if values is not None for column in _by_target(name, values)),
            OutputColumn("task", answer.task, exact=True),
            *_task_columns(answer, tasks, every_probability),
        ]
    columns = [
        OutputColumn("label", answer.labels.tolist(), exact=True),
        OutputColumn("task", answer.task, exact=True),
        OutputColumn("probability", answer.probabilities.max(1).tolist()),
        OutputColumn("total", answer.total.tolist()),
        OutputColumn("aleatoric", answer.aleatoric.tolist()),
        OutputColumn("epistemic", answer.epistemic.tolist()),
        *_task_columns(answer, tasks, every_probability),
    ]
    if every_probability:
        values = answer.probabilities.T.tolist()  # (N, labels) -> (labels, N)
        columns += [OutputColumn(f"p({name})", row) for name, row in zip(distinct_names(classes), values, strict=True)]
    return columns


def _by_target(name: str, values: "np.ndarray") -> list[OutputColumn]:
    """A column (N,), or one for each of several targets (N, D): mean_1, mean_2, ..."""
    if values.ndim == 1:
        return [OutputColumn(name, values.tolist())]
    return [OutputColumn(f"{name}_{number}", column) for number, column in enumerate(values.T.tolist(), 1)]


def _task_columns(answer: "ClassPrediction | RealPrediction", tasks: Sequence[str], every: bool) -> list[OutputColumn]:
    """The probability of the inferred task, whether inputs are known; with ``every`` all tasks', and how strange they
    are."""
    columns = []
    if answer.task_probabilities is not None:
        columns.append(OutputColumn("task_probability", answer.task_probabilities.max(1).tolist()))
        if every:
            values = answer.task_probabilities.T.tolist()  # (N, T) -> (T, N)
            columns += [OutputColumn(f"task_p({name})", row) for name, row in zip(tasks, values, strict=True)]
    if answer.known is not None:
        columns.append(OutputColumn("known", answer.known.tolist(), exact=True))
    if every and answer.strangeness is not None:
        columns.append(OutputColumn("strangeness", answer.strangeness.tolist()))
    return columns


def with_kept(
    columns: Columns, kept: Mapping[str, Sequence[Any]], files: Sequence[str] | None = None
) -> list[OutputColumn]:
    """The names of files and the kept input columns, then the predictions; ``input_label`` if both have a ``label``."""
    before = [] if files is None else [OutputColumn("file", files, exact=True)]
    taken = {column.name for column in (*before, *columns)}
    for name, values in kept.items():
        before.append(OutputColumn(f"input_{name}" if name in taken else name, values, exact=True))
    return [*before, *columns]
