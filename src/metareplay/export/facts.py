"""What the numbers of an exported network mean: written into its file as metadata."""

import json
from typing import Any

from metareplay.export.modules import Learned
from metareplay.version import __version__


def facts_of(learned: Learned, task: int | None) -> dict[str, Any]:
    """Names of tasks, labels and columns; labels are in the order of the outputs.

    ``columns`` are those of a table, ``encoding`` says how each became numbers, in order.
    """
    columns = learned.inputs.get("columns", []) if learned.inputs.get("kind") == "table" else []
    model, infos = learned.learner.model, learned.tasks if task is None else [learned.tasks[task]]
    facts: dict[str, Any] = {
        "metareplay": __version__,
        "problem": learned.learner.problem,
        "network": learned.learner.config.network,
        "input_shape": list(learned.learner.input_shape),
        "columns": [str(column["name"]) for column in columns],
        "encoding": list(columns),
        "tasks": [info.name for info in infos],
        "labels": learned.labels if task is None else list(infos[0].classes),
        "calibrated": learned.classifies and learned.learner.predictor.calibrated,
    }
    if task is not None:
        facts |= {"network_outputs": model.outputs, "head": [model.heads[task].start, model.heads[task].stop]}
    return facts


def as_text(value: Any) -> str:
    """A fact as metadata: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str)
