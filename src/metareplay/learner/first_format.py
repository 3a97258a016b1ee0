"""Models of version 0.1: ``model.json`` and ``weights-CHECKSUM.safetensors``. They load; saving replaces them."""

import re
from pathlib import Path
from typing import Any

from metareplay.errors import CheckpointError
from metareplay.learner.model_file import ModelFile, refuse_not_finite
from metareplay.texts import read_json_file
from metareplay.training.checkpoint import read_tensors, tensors_checksum

FORMAT, FACTS = "metareplay-model-1", "model.json"
WEIGHTS = r"weights-([0-9a-f]{8})\.safetensors"


def read_first_format(folder: Path) -> ModelFile:
    """Read such a model; its generation is 0."""
    path = folder / FACTS
    try:
        facts: dict[str, Any] = read_json_file(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); it is damaged or not a metareplay model") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a model of this version of metareplay (its format is not {FORMAT})")
    named = re.fullmatch(WEIGHTS, str(facts.get("weights")))
    if named is None:
        raise CheckpointError(f"{path} is damaged: it does not name a file of weights")
    tensors = read_tensors(folder / named[0]).tensors
    if f"{tensors_checksum(tensors):08x}" != named[1]:
        raise CheckpointError(
            f"{folder / named[0]} holds the weights of another model: their checksum does not match its name"
        )
    refuse_not_finite(tensors, str(folder / named[0]))
    return ModelFile({**facts, "generation": 0}, tensors)


def remove_first_format(folder: Path) -> None:
    """Remove such a model once another has taken its place; a file of another kind is left alone."""
    try:
        facts = read_json_file(folder / FACTS)
        if facts["format"] != FORMAT:
            return
    except (OSError, ValueError, TypeError, KeyError):
        return
    (folder / FACTS).unlink(missing_ok=True)  # first, so that it never names weights that are gone
    for path in folder.glob("weights-*.safetensors"):
        if re.fullmatch(WEIGHTS, path.name):
            path.unlink(missing_ok=True)
