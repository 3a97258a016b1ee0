"""The model that answers now: read from its folder, and replaced as a whole when the folder holds another one."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from metareplay.errors import MetaReplayError
from metareplay.estimators.loading import AnyEstimator, load_estimator
from metareplay.learner.store import find_model
from metareplay.serve.settings import ServeSettings

Signature = tuple[tuple[str, int, int, int], ...]
"""Name, inode, time and size of the files that make a model."""
ATTEMPTS = 5
"""Times that a folder is read while another process replaces the model in it."""


@dataclass(frozen=True, eq=False)
class Generation:
    """One state of the model; a request is answered by one generation from beginning to end."""

    number: int
    estimator: AnyEstimator
    signature: Signature
    since: float = field(default_factory=time.time)


def folder_signature(folder: Path) -> Signature:
    """What changes whenever the model in a folder is replaced."""
    folder = find_model(folder)
    found = []
    for path in sorted((*folder.glob("model.json"), *folder.glob("*.safetensors"))):
        try:
            facts = path.stat()
        except FileNotFoundError:
            continue  # replaced in this moment
        found.append((path.name, facts.st_ino, facts.st_mtime_ns, facts.st_size))
    return tuple(found)


class LiveModel:
    """The current generation; ``refresh`` loads the folder's model if it is another one, and switches in one step."""

    def __init__(self, folder: Path, settings: ServeSettings, load: Callable[..., AnyEstimator] = load_estimator):
        self.folder, self.settings, self._load = folder, settings, load
        self.problem: str | None = None
        """Why the folder's newest model is not the one that answers."""
        self._refused: Signature | None = None
        self._lock = Lock()
        signature = folder_signature(folder)
        self.current = Generation(1, load(folder, settings=settings.inference), signature)

    def refresh(self) -> bool:
        """Switch to the folder's model if it changed; if it cannot be read, the current one goes on answering."""
        with self._lock:
            signature = folder_signature(self.folder)
            if signature in (self.current.signature, self._refused):
                return False
            try:
                signature, estimator = self._read()
            except MetaReplayError as error:
                self.problem, self._refused = str(error), signature
                return False
            self.problem = self._refused = None
            self.current = Generation(self.current.number + 1, estimator, signature)
            return True

    def _read(self) -> tuple[Signature, AnyEstimator]:
        """The model, read while nothing in its folder changed."""
        problem: MetaReplayError | None = None
        for attempt in range(ATTEMPTS):
            signature = folder_signature(self.folder)
            try:
                estimator = self._load(self.folder, settings=self.settings.inference)
            except MetaReplayError as error:
                problem = error
            else:
                if folder_signature(self.folder) == signature:
                    return signature, estimator
            time.sleep(0.05 * (attempt + 1))
        raise problem or MetaReplayError(
            f"{self.folder} keeps changing; the last model that could be read stays in use"
        )
