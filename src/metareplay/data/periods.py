"""The periods that the dates of tasks span: if dates alone tell the tasks apart, later ones look unknown."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from metareplay.data.dates import DAY, EPOCH, PARTS

Period = tuple[str, str]
"""The first and the last day, as 2024-01-31."""
DAYS = "days"
"""The first part of every date."""


def periods_of(x: Tensor, inputs: Mapping[str, Any]) -> dict[str, Period]:
    """The period of each date column in raw inputs (N, D) that were encoded as ``inputs`` says."""
    periods, start = {}, 0
    for entry in inputs.get("columns", ()):
        if DAYS in entry.get("date", ())[:1]:
            days = x[:, start].numpy()  # (N, D) -> (N,)
            days = days[~np.isnan(days)]
            if len(days):
                periods[entry["name"]] = (_written(float(days.min())), _written(float(days.max())))
        start += _width(entry)
    return periods


def _width(entry: Mapping[str, Any]) -> int:
    """How many inputs a column becomes."""
    if "date" in entry:
        moment = np.array([EPOCH])
        return sum(PARTS[part](moment).shape[1] for part in entry["date"])
    return len(entry["values"]) if "values" in entry else int(entry.get("text", 1))


def _written(days: float) -> str:
    return str((EPOCH + int(np.floor(days)) * DAY).astype("datetime64[D]"))


def joint_period(one: Period, other: Period) -> Period:
    """From the first day of both to the last."""
    return min(one[0], other[0]), max(one[1], other[1])


def separating_dates(tasks: Sequence[Mapping[str, Period]]) -> list[str]:
    """The date columns that alone tell tasks apart: the periods of no two tasks have a day in common."""
    if len(tasks) < 2:
        return []
    common = [name for name in tasks[0] if all(name in periods for periods in tasks)]
    return [name for name in common if _apart(sorted(periods[name] for periods in tasks))]


def _apart(periods: Sequence[Period]) -> bool:
    return all(before[1] < after[0] for before, after in pairwise(periods))


def period_notes(tasks: Sequence[Mapping[str, Period]], *, fresh: bool = True) -> list[str]:
    """A note if dates alone tell the tasks apart; a model that is not ``fresh`` has its columns already."""
    if not (names := separating_dates(tasks)):
        return []
    which, ignored = ", ".join(map(repr, names)), ",".join(names)
    model = "" if fresh else " when a new model is learned"
    return [
        f"the dates in {which} alone tell the tasks apart, so rows with later dates will look unknown; "
        f"--ignore {ignored} leaves {'it' if len(names) == 1 else 'them'} out{model}"
    ]
