"""A line of JSON for every answered input, for tools that watch a model in use."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor

from metareplay.errors import ConfigError
from metareplay.serve.columns import column_width
from metareplay.serve.live import Generation


class PredictionLog:
    """Appends to a file, which is reopened for each request, so that it can be moved away at any time."""

    def __init__(self, path: Path, *, with_inputs: bool) -> None:
        self.path, self.with_inputs, self._complained = path, with_inputs, False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("a").close()
        except OSError as error:
            raise ConfigError(f"--log {path} cannot be written: {error.strerror or error}") from error

    def write(self, rows: Sequence[Mapping[str, Any]], x: Tensor, generation: Generation) -> bool:
        """Append one line per input; the answer is given whether or not that succeeds."""
        when = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
        names = input_names(generation.estimator.inputs) if self.with_inputs else None
        numbers = x.flatten(1).tolist() if self.with_inputs else [None] * len(rows)  # (N, ...) -> (N, D)
        lines = []
        for row, values in zip(rows, numbers, strict=True):
            line = {"time": when, "generation": generation.number, **flat(row)}
            if values is not None:
                line |= {"inputs": values} if names is None else dict(zip(names, values, strict=True))
            lines.append(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write("".join(lines))
        except OSError as error:
            if not self._complained:
                print(
                    f"warning: {self.path} cannot be written: {error}; predictions go on",
                    file=sys.stderr,
                    flush=True,
                )
            self._complained = True
            return False
        self._complained = False
        return True


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """An answer in plain columns: of all probabilities only that of the label and that of the task."""
    line = {key: value for key, value in row.items() if key not in ("probabilities", "task_probabilities")}
    for key, name in (("probabilities", "probability"), ("task_probabilities", "task_probability")):
        if row.get(key) is not None:
            line[name] = max(row[key].values())
    return line


def input_names(known: Mapping[str, Any]) -> list[str] | None:
    """A name for every number of an input: the column, or column and value; None for inputs that are not a table."""
    if known.get("kind") != "table":
        return None
    names = []
    for entry in known["columns"]:
        name = f"input.{entry['name']}"
        if "values" in entry:
            names += [f"{name}={value}" for value in entry["values"]]
        elif "date" in entry:
            names += [f"{name}.{part}" for part in range(column_width(entry))]
        else:
            names.append(name)
    return names
