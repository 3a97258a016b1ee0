"""A learned model on disk: ``model.json`` and a safetensors file, replaced together or not at all."""

import json
import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from metareplay.benchmarks.base import Scenario, TaskInfo
from metareplay.errors import CheckpointError, ConfigError, MetaReplayError
from metareplay.files import write_atomically
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.settings import flatten
from metareplay.training.checkpoint import read_tensors, tensors_checksum, write_tensors

FORMAT = "metareplay-model-1"


class StoredModel(NamedTuple):
    """The result of ``load_model``."""

    folder: Path
    learner: ContinualLearner
    tasks: list[TaskInfo]
    scaling: dict[str, Tensor]
    inputs: dict[str, Any]
    """How a row or an image of a user's files becomes an input; empty if the model did not learn from files."""


def save_model(
    folder: Path,
    learner: ContinualLearner,
    tasks: Sequence[TaskInfo],
    scaling: Mapping[str, Tensor],
    inputs: Mapping[str, Any] | None = None,
) -> None:
    """Write a model. An older one in the folder stays intact until the new one is complete."""
    described = [{"name": task.name, "classes": [encode_label(label) for label in task.classes]} for task in tasks]
    tensors = {**learner.tensors(training=False), **{f"scaling.{name}": tensor for name, tensor in scaling.items()}}
    weights = f"weights-{tensors_checksum(tensors):08x}.safetensors"
    facts = {
        "format": FORMAT,
        "problem": learner.problem,
        "scenario": learner.scenario.value,
        "input_shape": list(learner.input_shape),
        "inputs": dict(inputs or {}),
        "tasks": described,
        **learner.facts(),
        "weights": weights,
        "config": learner.config.dump(),
    }
    write_tensors(folder / weights, tensors, {"model": FORMAT})
    write_atomically(folder / "model.json", json.dumps(facts, indent=1))
    for old in folder.glob("weights-*.safetensors"):
        if old.name != weights and re.fullmatch(r"weights-[0-9a-f]{8}\.safetensors", old.name):
            old.unlink(missing_ok=True)


def load_model(folder: Path, settings: Mapping[str, Any] | None = None) -> StoredModel:
    """Read a model from ``save_model`` or from a run's folder; inference ``settings`` replace the stored ones."""
    if fixed := [key for key in settings or {} if not key.startswith("inference.")]:
        raise ConfigError(
            f"{fixed[0]} of a learned model cannot be changed; only inference.* settings can. Learn it again instead"
        )
    folder = folder / "model" if (folder / "model" / "model.json").is_file() else folder
    facts = _read_facts(folder / "model.json")
    try:
        return _build(folder, facts, settings or {})
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / 'model.json'} is damaged: {type(error).__name__} {error}") from error


def _build(folder: Path, facts: Mapping[str, Any], settings: Mapping[str, Any]) -> StoredModel:
    tensors = read_tensors(folder / facts["weights"]).tensors
    config = build_config({}, flatten(facts["config"]), str(folder / "model.json"), stored=True)
    config = build_config(flatten(config.model_dump()), settings, "settings") if settings else config
    learner = ContinualLearner(
        config,
        facts["problem"],
        Scenario(facts["scenario"]),
        tuple(facts["input_shape"]),
        total_outputs=facts.get("total_outputs"),
    )
    learner.restore(facts, tensors)
    tasks = [TaskInfo(task["name"], tuple(decode_label(label) for label in task["classes"])) for task in facts["tasks"]]
    scaling = {name.removeprefix("scaling."): tensor for name, tensor in tensors.items() if name.startswith("scaling.")}
    return StoredModel(folder, learner, tasks, scaling, dict(facts.get("inputs", {})))


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError as error:
        seeds = [folder for folder in path.parent.glob("seed-*") if (folder / "model" / "model.json").is_file()]
        first = min(seeds, key=lambda folder: (len(folder.name), folder.name), default=None)
        advice = "pass the folder that save() or a run wrote"
        if first is not None:
            advice = f"it holds runs of several seeds, so pass the folder of one, e.g. {first}"
        elif (path.parent / "config.yaml").is_file():
            advice = "the run in it has not finished its first task; continue it with --resume"
        raise CheckpointError(f"{path.parent} does not contain a model: model.json is missing; {advice}") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); it is damaged or not a metareplay model") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a model of this version of metareplay (its format is not {FORMAT})")
    return facts


def encode_label(label: Hashable) -> Any:
    """A class label as JSON: plain values as they are, tuples marked."""
    if label is None or isinstance(label, bool | int | float | str):
        return label
    if isinstance(label, tuple):
        return {"tuple": [encode_label(part) for part in label]}
    raise ConfigError(
        f"the class label {label!r} of type {type(label).__name__} cannot be saved; use strings, numbers, booleans, "
        "None, or tuples of these"
    )


def decode_label(stored: Any) -> Hashable:
    """The reverse of ``encode_label``."""
    if isinstance(stored, dict):
        return tuple(decode_label(part) for part in stored["tuple"])
    if isinstance(stored, list):
        raise MetaReplayError(f"the stored class label {stored!r} is damaged")
    label: Hashable = stored
    return label
