"""What a study has found: study.json for its page, and a recipe for ``metareplay run --config``."""

import json
from pathlib import Path
from typing import Any

import yaml

from metareplay.errors import MetaReplayError
from metareplay.experiments.tuning.definition import PROTOCOL_KEYS, Definition
from metareplay.experiments.tuning.study import Study, TrialRecord
from metareplay.files import write_atomically
from metareplay.settings import flatten, nest

SUMMARY = "study.json"
NOT_IN_RECIPES = (*PROTOCOL_KEYS, "seed", "threads", "data_dir", "report.references")
"""The protocol is that of the search, and the rest is for whoever runs the recipe."""


def write_summary(study: Study) -> dict[str, Any]:
    """Write and return everything that the page shows."""
    definition, best, records = study.definition, study.best(), study.records()
    content = {
        "schema": 1,
        "benchmark": definition.config().benchmark,
        "subject": definition.subject,
        "method": definition.config().method,
        "network": definition.config().network,
        "protocol": definition.protocol,
        "test_set": "tasks.validation" not in _changed(definition),
        "figure": definition.figure,
        "lower_is_better": definition.lower_is_better,
        "objective": definition.objective,
        "sampler": definition.sampler,
        "pruning": definition.prune,
        "seed": definition.seed,
        "source": definition.source,
        "space_source": definition.space_source,
        "space": {key: entry.model_dump(mode="json") for key, entry in definition.space.items()},
        "best": None if best is None else best.number,
        "recipe": None if best is None else recipe_text(study, best),
        "importances": study.importances(),
        "trials": [_plain(record) for record in records],
    }
    write_atomically(study.folder / SUMMARY, json.dumps(content, indent=1))
    return content


def write_recipe(study: Study, path: Path) -> Path:
    """Write the settings of the best trial, for ``metareplay run --config``."""
    best = study.best()
    if best is None:
        raise MetaReplayError(
            f"no trial has finished yet, so {path} was not written; repeat the command to continue the study"
        )
    return write_atomically(path, recipe_text(study, best))


def recipe_text(study: Study, best: TrialRecord) -> str:
    """YAML; its comments say which protocol made the figure."""
    definition = study.definition
    dumped = flatten(definition.config(best.settings).dump())
    settings = {key: value for key, value in dumped.items() if key not in NOT_IN_RECIPES}
    unit = "" if definition.lower_is_better else " %"
    lines = (
        f"Chosen by metareplay tune: trial {best.number} of {len(study.records())}.",
        f"It reached {best.value:.4g}{unit}: {definition.figure}.",
        f"Protocol: {definition.protocol}.",
        f"Searched: {', '.join(definition.space)} ({definition.space_source}; {definition.sampler}).",
        "Use it: metareplay run --config THIS_FILE",
    )
    comments = "".join(f"# {line}\n" for line in lines)
    return comments + yaml.safe_dump(nest(settings), sort_keys=False, allow_unicode=True)


def _changed(definition: Definition) -> set[str]:
    """The settings of the protocol that are in force."""
    settings = flatten(definition.base)
    return {key for key in PROTOCOL_KEYS if settings.get(key)}


def _plain(record: TrialRecord) -> dict[str, Any]:
    content = record._asdict()
    return {**content, "after_tasks": [[task, score] for task, score in sorted(record.after_tasks.items())]}
