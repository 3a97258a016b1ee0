"""A learned model on disk, in the layout of the Hugging Face hub; see docs/model_files.md."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from metareplay.benchmarks.base import Scenario, TaskInfo
from metareplay.errors import CheckpointError, ConfigError, MetaReplayError
from metareplay.learner.config import build_config
from metareplay.learner.first_format import FACTS, read_first_format, remove_first_format
from metareplay.learner.generations import MODEL, compact, read_generation, read_history, write_generation, writing
from metareplay.learner.history import HistoryEntry
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.model_file import ModelFile, refuse_not_finite
from metareplay.nets.backbones import has_backbone, prefix_of, split_name
from metareplay.nets.own import name_of
from metareplay.permissions import permit
from metareplay.settings import flatten

__all__ = [
    "HistoryEntry",
    "StoredModel",
    "compact",
    "find_model",
    "load_model",
    "read_history",
    "restore_generation",
    "save_model",
    "writing",
]


class StoredModel(NamedTuple):
    """The result of ``load_model``."""

    folder: Path
    learner: ContinualLearner
    tasks: list[TaskInfo]
    scaling: dict[str, Tensor]
    inputs: dict[str, Any]
    """How a row or an image of a user's files becomes an input; empty if the model did not learn from files."""
    generation: int
    """Counts how often the model was stored; 0 for a model of version 0.1."""


def save_model(
    folder: Path,
    learner: ContinualLearner,
    tasks: Sequence[TaskInfo],
    scaling: Mapping[str, Tensor],
    inputs: Mapping[str, Any] | None = None,
    *,
    entry: HistoryEntry | None = None,
    keep_previous: bool = False,
    generation: int | None = None,
) -> int:
    """Write a model and return its generation. An older one in the folder stays intact until the new one is complete.

    ``entry`` is added to the history. ``keep_previous`` keeps the older model in ``versions/``. ``generation`` is for
    runs, which write the same bytes whether or not they were interrupted; else it is one more than the last.
    """
    described = [{"name": task.name, "classes": [encode_label(label) for label in task.classes]} for task in tasks]
    tensors = {**learner.tensors(training=False), **{f"scaling.{name}": tensor for name, tensor in scaling.items()}}
    facts = {
        "problem": learner.problem,
        "scenario": learner.scenario.value,
        "input_shape": list(learner.input_shape),
        "inputs": dict(inputs or {}),
        "tasks": described,
        **learner.facts(),
        "config": learner.config.dump(),
    }
    refuse_not_finite(tensors, "the model")
    with writing(folder):
        number = write_generation(
            folder, tensors, facts, entry=entry, keep_previous=keep_previous, generation=generation
        )
        remove_first_format(folder)
    return number


def load_model(
    folder: Path,
    settings: Mapping[str, Any] | None = None,
    *,
    network: Callable[..., nn.Module] | None = None,
    generation: int | None = None,
) -> StoredModel:
    """Read a model from ``save_model`` or from a run's folder; inference ``settings`` replace the stored ones.

    ``network`` is the function that builds a network of the user's own: none is imported because a file names it.
    ``generation`` is an earlier one that was kept.
    """
    if fixed := [key for key in settings or {} if not key.startswith("inference.")]:
        raise ConfigError(
            f"{fixed[0]} of a learned model cannot be changed; only inference.* settings can. Learn it again instead"
        )
    folder = find_model(folder)
    stored = read_generation(folder, generation) if (folder / MODEL).is_file() else read_first_format(folder)
    try:
        return _build(folder, stored, settings or {}, network)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"the model in {folder} is damaged: {type(error).__name__} {error}") from error


def restore_generation(folder: Path, generation: int, entry: HistoryEntry) -> int:
    """Make an earlier generation that was kept the newest one; the present one is kept. Returns its new number."""
    with writing(folder):
        stored = read_generation(folder, generation)
        return write_generation(folder, stored.tensors, stored.facts, entry=entry, keep_previous=True)


def find_model(folder: Path) -> Path:
    """The folder of the model itself, of which ``folder`` may be the run; refused if there is none."""
    for place in (folder / "model", folder):
        if _is_model(place):
            return place
    seeds = [path for path in folder.glob("seed-*") if _is_model(path / "model")]
    first = min(seeds, key=lambda path: (len(path.name), path.name), default=None)
    advice = "pass the folder that save() or a run wrote"
    if first is not None:
        advice = f"it holds runs of several seeds, so pass the folder of one, e.g. {first}"
    elif (folder / "new.json").is_file():
        raise CheckpointError(f"{folder} is a new model without tasks; add one with: metareplay add-task {folder} DATA")
    elif (folder / "config.yaml").is_file():
        advice = "the run in it has not finished its first task; continue it with --resume"
    raise CheckpointError(f"{folder} does not contain a model: {MODEL} is missing; {advice}")


def _named(network: Callable[..., nn.Module], stored: str) -> str:
    """The network that the user's function builds, or the backbone that it returns in the place of the stored one."""
    name = name_of(network)
    return f"{prefix_of(stored)}{name}+{split_name(stored)[1]}" if has_backbone(stored) else name


def _is_model(folder: Path) -> bool:
    return (folder / MODEL).is_file() or (folder / FACTS).is_file()


def _build(
    folder: Path, stored: ModelFile, settings: Mapping[str, Any], network: Callable[..., nn.Module] | None
) -> StoredModel:
    facts, tensors = stored
    values = flatten(facts["config"])
    if network is not None:
        values["network"] = _named(network, str(values["network"]))
        permit(values["network"])
    config = build_config({}, values, str(folder), stored=True)
    config = build_config(flatten(config.model_dump()), settings, "settings") if settings else config
    tasks = [TaskInfo(task["name"], tuple(decode_label(label) for label in task["classes"])) for task in facts["tasks"]]
    if len(tasks) != len(facts["heads"]):
        raise CheckpointError(
            f"the model in {folder} is damaged: it names {len(tasks)} tasks, but has outputs for {len(facts['heads'])}"
        )
    for task, (start, stop) in zip(tasks, facts["heads"], strict=True):
        if task.classes and len(task.classes) != stop - start:
            raise CheckpointError(
                f"the model in {folder} is damaged: its task {task.name!r} names {len(task.classes)} classes, but has "
                f"{stop - start} outputs"
            )
    learner = ContinualLearner(
        config,
        facts["problem"],
        Scenario(facts["scenario"]),
        tuple(facts["input_shape"]),
        total_outputs=facts.get("total_outputs"),
    )
    learner.restore(facts, tensors)
    scaling = {name.removeprefix("scaling."): tensor for name, tensor in tensors.items() if name.startswith("scaling.")}
    return StoredModel(folder, learner, tasks, scaling, dict(facts.get("inputs", {})), facts["generation"])


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
