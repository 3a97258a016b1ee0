"""Columns of numbers that will mislead a model: identifiers, and cells that are absurdly far from all others."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from metareplay.data.columns import Table
from metareplay.data.encoding import widths_of

LEAST = 30
"""Rows from which integers that are all different are hardly so by chance."""
DISTINCT, ONE_WAY = 0.95, 0.99
"""Of an identifier's values at least this share is distinct; of its steps in the file, as many go the same way."""
DENSE = 0.5
"""Integers that are all different and fill at least this share of their range number something."""
ABSURD = 1e6
"""A cell is absurd if it is more than this many times as far from the median as half of those that differ from it."""
IGNORE, LATER = "--ignore {name} leaves it out", "--ignore {name} leaves it out when a new model is learned"


def misleading_notes(
    table: Table,
    x: np.ndarray,
    described: Sequence[Mapping[str, Any]],
    task: np.ndarray | None = None,
    advice: str = IGNORE,
) -> list[str]:
    """Notes on the plain numbers among the columns of a table, whose inputs are ``x`` (N, D).

    ``task``: the task of each row (N,); ``advice`` says how a column is left out.
    """
    train = np.ones(len(table), dtype=bool) if table.test is None else ~table.test
    plain = [entry["name"] for entry in described if not {"values", "text", "date"} & entry.keys()]
    numbers = _distinct_integers(table, plain)
    notes = []
    for name, values in numbers.items():
        ways = _as_identifier(values[train], None if task is None else task[train])
        if ways:
            notes.append(
                f"{name!r} looks like an identifier: its whole numbers {' and '.join(ways)}, so rows with later "
                f"numbers may look unknown or be taken for the last task; {advice.format(name=name)}"
            )
    starts = np.cumsum([0, *widths_of(described)])
    for entry, start in zip(described, starts[:-1].tolist(), strict=True):
        if entry["name"] in plain and entry["name"] not in numbers:
            notes += _absurd(table, entry["name"], x[:, start])
    return notes


def _distinct_integers(table: Table, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The columns whose values (N,) are integers that nearly all differ; others are dropped as soon as that shows."""
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for piece in table.tables(names):
        for name in list(parts):
            column = piece.columns[name]
            values = column.values if column.kind == "number" else None
            if values is None or values.dtype.kind not in "fiu" or not _nearly_distinct(values.astype(np.float64)):
                del parts[name]
            else:
                parts[name].append(values.astype(np.float64))
    joined = {name: np.concatenate(pieces) for name, pieces in parts.items() if pieces}
    return {name: values for name, values in joined.items() if len(values) >= LEAST and _nearly_distinct(values)}


def _nearly_distinct(values: np.ndarray) -> bool:
    whole = bool((np.isfinite(values) & (values == np.floor(values))).all())
    return whole and len(np.unique(values)) >= DISTINCT * len(values)


def _as_identifier(values: np.ndarray, task: np.ndarray | None) -> list[str]:
    """In which ways integers (N,) are like an identifier; none if they are not."""
    if len(values) < LEAST:
        return []
    steps, spread = np.diff(values), values.max() - values.min() + 1
    ways = []
    if max((steps > 0).mean(), (steps < 0).mean()) >= ONE_WAY:
        ways.append(f"{'rise' if steps.mean() > 0 else 'fall'} from row to row")
    elif len(np.unique(values)) == len(values) >= DENSE * spread:
        ways.append("number the rows")
    if task is not None and _apart(values, task):
        ways.append("alone tell the tasks apart")
    return ways


def _apart(values: np.ndarray, task: np.ndarray) -> bool:
    """Whether the values of no two tasks overlap."""
    ranges = sorted((values[task == t].min(), values[task == t].max()) for t in np.unique(task))
    return len(ranges) > 1 and all(before[1] < after[0] for before, after in pairwise(ranges))


def _absurd(table: Table, name: str, values: np.ndarray) -> list[str]:
    """A note on the cells of a column (N,) that are absurdly far from all others."""
    values = values.astype(np.float64)
    known = values[~np.isnan(values)]
    if not len(known):
        return []
    middle = float(np.median(known))
    far = np.abs(values - middle)  # NaN where there is none
    differing = far[far > 0]
    if not len(differing) or float(differing.max()) <= ABSURD * float(usual := np.median(differing)):
        return []
    odd = np.nan_to_num(far) > ABSURD * usual
    row, count = int(np.nanargmax(far)), int(odd.sum())
    more = f", and {count - 1} more" if count > 1 else ""
    return [
        f"{table.where(row)}: column {name!r} has the value {values[row]:g}, though half of its values are within "
        f"{usual:.2g} of {middle:.2g}{more}; correct it if it is a typo, because it decides how the column is scaled"
    ]
