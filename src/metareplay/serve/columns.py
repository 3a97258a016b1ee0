"""The columns of a model's inputs as a form wants them: with values to begin with."""

from typing import Any

import numpy as np

from metareplay.data.dates import encode_dates
from metareplay.estimators.loading import AnyEstimator


def typical_inputs(estimator: AnyEstimator) -> list[float] | None:
    """The averages of the first task's inputs, rounded; None if the model does not hold them."""
    mean = estimator.scaling.tensors.get("x_mean")
    return None if mean is None or mean.ndim != 1 else [float(f"{value:.3g}") for value in mean.tolist()]


def described_columns(estimator: AnyEstimator) -> list[dict[str, Any]] | None:
    """Name, kind and a typical value of each column; None if the inputs have no names."""
    if estimator.inputs.get("kind") != "table":
        return None
    typical, start, columns = typical_inputs(estimator), 0, []
    for entry in estimator.inputs["columns"]:
        width = column_width(entry)
        column = dict(entry)
        if typical is not None and "values" not in entry and "date" not in entry:
            column["typical"] = typical[start]
        columns.append(column)
        start += width
    return columns


def column_width(entry: Any) -> int:
    """How many numbers a column becomes."""
    if "values" in entry:
        return len(entry["values"])
    if "date" in entry:
        return int(encode_dates(np.array(["2000-01-01"], dtype="datetime64[s]"), entry["date"]).shape[1])
    return 1
