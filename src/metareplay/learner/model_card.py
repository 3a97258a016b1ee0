"""The model card: ``README.md`` of a stored model, made from facts alone."""

import json
import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from metareplay.learner.history import HistoryEntry

MADE_HERE = "<!-- written by metareplay; remove this line to keep your own text -->"
MOST_ROWS, MOST_CLASSES = 50, 20
LIMITS = (
    "Its uncertainties are estimates. Task inference cannot tell apart tasks whose inputs look alike: "
    "name the task if you know it. Inputs unlike those of every task are flagged as unknown only where task "
    "statistics were stored."
)


def model_card(facts: Mapping[str, Any], entries: Sequence[HistoryEntry]) -> str:
    """The text of the card."""
    config = facts.get("config", {})
    estimator = "ContinualClassifier" if facts["problem"] == "classification" else "ContinualRegressor"
    parts = [
        _front_matter(facts),
        MADE_HERE,
        f"# A model of {len(facts['tasks'])} {'task' if len(facts['tasks']) == 1 else 'tasks'}",
        f"Learned one task after another with metareplay: method `{plain(config.get('method'))}`, network "
        f"`{plain(config.get('network'))}`, {plain(facts['problem'])} in scenario `{plain(facts['scenario'])}`. One "
        f"input has shape {tuple(facts['input_shape'])}. This is generation {facts['generation']}.",
        "## How to load it",
        f'```python\nfrom metareplay import {estimator}\n\nmodel = {estimator}.load("path/of/this/folder")\n```',
        "Nothing in this folder is pickled or run: weights and metadata are in `model.safetensors`.",
        "## Tasks",
        _tasks(facts, entries),
        *_figures(entries),
        *_data(facts, entries),
        "## Limits",
        LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


def plain(value: Any) -> str:
    """Text of a user's, so that Markdown and HTML leave it as it is."""
    text = re.sub(r"[\x00-\x1f\x7f]+", " ", str(value))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#|~!])", r"\\\1", text) if re.search(r"[^\w .,:+/-]", text) else text


def _front_matter(facts: Mapping[str, Any]) -> str:
    """What the Hugging Face hub reads; the values are ours or JSON, which is YAML too."""
    image = len(facts["input_shape"]) == 3 and prod(facts["input_shape"]) > 0
    kind = "image" if image and facts["problem"] == "classification" else "tabular"
    lines = [
        "---",
        "library_name: metareplay",
        f"pipeline_tag: {kind}-{'classification' if facts['problem'] == 'classification' else 'regression'}",
        "tags:",
        *(f"- {tag}" for tag in ("metareplay", "continual-learning", "bayesian", "uncertainty")),
        f"method: {json.dumps(str(facts.get('config', {}).get('method')))}",
        "---",
    ]
    return "\n".join(lines)


def _tasks(facts: Mapping[str, Any], entries: Sequence[HistoryEntry]) -> str:
    examples: dict[str, int] = {}
    for entry in entries:
        if len(entry.tasks) == 1 and entry.examples is not None:
            examples[entry.tasks[0]] = examples.get(entry.tasks[0], 0) + entry.examples
    rows = ["| number | task | classes | examples |", "|---|---|---|---|"]
    for number, task in enumerate(facts["tasks"][:MOST_ROWS]):
        labels = [plain(label["tuple"] if isinstance(label, dict) else label) for label in task["classes"]]
        words = ", ".join(labels[:MOST_CLASSES]) + (
            f" and {len(labels) - MOST_CLASSES} more" * (len(labels) > MOST_CLASSES)
        )
        seen = examples.get(task["name"])
        rows.append(
            f"| {number} | {plain(task['name'])} | {words or '(regression)'} | {'-' if seen is None else seen} |"
        )
    more = len(facts["tasks"]) - MOST_ROWS
    return "\n".join(rows) + (f"\n\n... and {more} more." if more > 0 else "")


def _figures(entries: Sequence[HistoryEntry]) -> list[str]:
    known = [entry for entry in entries if entry.figures][-MOST_ROWS:]
    if not known:
        return []
    rows = ["| generation | step | tasks | figures |", "|---|---|---|---|"]
    for entry in known:
        figures = ", ".join(f"{plain(name)} {value:.4g}" for name, value in entry.figures.items())
        names = ", ".join(map(plain, entry.tasks[:5])) + (", ..." if len(entry.tasks) > 5 else "")
        rows.append(f"| {entry.generation} | {plain(entry.verb)} | {names} | {figures} |")
    return ["## Figures", "\n".join(rows)]


def _data(facts: Mapping[str, Any], entries: Sequence[HistoryEntry]) -> list[str]:
    """Fingerprints of the data, where they are known."""
    known = {entry.fingerprint: ", ".join(map(plain, entry.tasks[:5])) for entry in entries if entry.fingerprint}
    if fingerprint := (facts.get("config", {}).get("data") or {}).get("fingerprint"):
        known.setdefault(fingerprint, "all tasks")
    if not known:
        return []
    return ["## Data", "\n".join(f"- fingerprint `{plain(mark)}`: {names}" for mark, names in known.items())]
