"""The folder of a living model: empty at first, and with work under way that survives a kill."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from metareplay.errors import CheckpointError, ConfigError
from metareplay.files import write_atomically
from metareplay.learner.store import StoredModel, find_model, load_model
from metareplay.texts import read_json_file
from metareplay.training.checkpoint import Checkpoint, CheckpointFolder

NEW, WORK, OPERATION = "new.json", ".work", "operation.json"
FORMAT = "metareplay-new-1"
LONGEST_NAME = 200


class NewModel(NamedTuple):
    """A model without tasks: what its first task will be learned with."""

    method: str
    network: str | None
    settings: Mapping[str, Any]


class Operation(NamedTuple):
    """Training that is under way in a model's folder."""

    verb: str
    task: str
    fingerprint: str
    """Of its data."""
    generation: int
    """Of the model that it began with."""

    def __str__(self) -> str:
        return f"{self.verb} of task {self.task!r}"


def begin_new(folder: Path, new: NewModel) -> None:
    """Make the folder of a model without tasks."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not empty; choose another folder, or remove it")
    content = {"format": FORMAT, "method": new.method, "network": new.network, "settings": dict(new.settings)}
    write_atomically(folder / NEW, json.dumps(content, indent=1) + "\n")


def read_new(folder: Path) -> NewModel | None:
    """What ``begin_new`` wrote; None once the model has a task, or if there is nothing."""
    try:
        content = read_json_file(folder / NEW)
        if content["format"] != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        new = NewModel(content["method"], content["network"], content["settings"])
        kinds = zip(NewModel._fields, new, (str, str | None, dict), strict=True)
        if wrong := [name for name, value, kind in kinds if not isinstance(value, kind)]:
            raise ValueError(f"its {wrong[0]} has the wrong type")
        return new
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"the model in {folder} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / NEW} is damaged ({error}); create the model again") from error


def checked_name(name: str) -> str:
    """The name of a task, without spaces around it; refused if it could not be read or typed."""
    name = name.strip()
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise ConfigError(f"a task needs a name of 1 to {LONGEST_NAME} printable characters; choose another one")
    return name


def open_model(folder: Path) -> StoredModel:
    """Read a model that has tasks."""
    if read_new(folder) is not None and not _has_model(folder):
        raise ConfigError(f"{folder} is a new model without tasks; add one with: metareplay add-task {folder} DATA")
    return load_model(folder)


def model_folder(folder: Path) -> Path:
    """Where the model itself is: in the folder, or in ``model/`` of a run's folder."""
    return folder if read_new(folder) is not None else find_model(folder)


def _has_model(folder: Path) -> bool:
    try:
        find_model(folder)
    except CheckpointError:
        return False
    return True


def finish_new(folder: Path) -> None:
    """The first task has been stored."""
    (folder / NEW).unlink(missing_ok=True)


class Work:
    """Training under way in a model's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / WORK

    def pending(self, generation: int) -> Operation | None:
        """What is unfinished; what was stored before a kill, or belongs to an older model, is cleared away."""
        try:
            if self.folder.is_symlink():
                raise ValueError("work is never kept behind a link")
            operation = Operation(**read_json_file(self.folder / OPERATION))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError):
            self.clear()
            return None
        if operation.generation != generation:
            self.clear()
            return None
        return operation

    def refuse_unfinished(self, generation: int, own: Operation | None = None) -> bool:
        """Whether this operation is unfinished; anything else that is unfinished is refused."""
        pending = self.pending(generation)
        if pending is not None and pending != own:
            other = " with other data" if own is not None and own[:2] == pending[:2] else ""
            raise ConfigError(
                f"an {pending}{other} is unfinished in {self.folder.parent}; continue it with the command that began "
                f"it, or discard it with: metareplay undo {self.folder.parent}"
            )
        return pending is not None

    def begin(self, operation: Operation) -> None:
        """From now on this is under way."""
        self.clear()
        write_atomically(self.folder / OPERATION, json.dumps(operation._asdict()))

    def checkpoints(self, operation: Operation) -> CheckpointFolder:
        """Of this operation."""
        return CheckpointFolder(self.folder, json.dumps(operation._asdict(), sort_keys=True))

    def last(self, operation: Operation) -> Checkpoint | None:
        """The newest checkpoint that can be used; None: begin again."""
        try:
            return self.checkpoints(operation).last_good()
        except CheckpointError:
            return None

    def write(self, operation: Operation, number: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Add a checkpoint."""
        self.checkpoints(operation).write(number, tensors, facts)

    def clear(self) -> None:
        """Nothing is under way."""
        if self.folder.is_dir() and not self.folder.is_symlink():
            shutil.rmtree(self.folder, ignore_errors=True)
        else:  # a file, a link or a FIFO that was planted
            self.folder.unlink(missing_ok=True)
