"""More observers of a run: a progress file, TensorBoard, several observers at once."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from metareplay.errors import ConfigError
from metareplay.files import write_atomically
from metareplay.training.loop import Step
from metareplay.training.progress import NullObserver, Observer, Stage


@final
class ProgressFile(NullObserver):
    """Writes a run's progress to a small file, for the process that started it."""

    def __init__(self, path: Path) -> None:
        self.path, self.stage, self.last = path, Stage(0, 1, ""), 0.0

    def stage_begins(self, stage: Stage, iteration: int, iterations: int) -> None:
        self.stage = stage

    def step(self, step: Step) -> None:
        now = time.monotonic()
        if now - self.last > 0.5:
            self.last = now
            number = self.stage.number
            share = (number + step.iteration / step.iterations) / self.stage.total
            write_atomically(self.path, json.dumps({"task": number, "share": share}))

    def close(self) -> None:
        self.path.unlink(missing_ok=True)


@final
class TensorBoard(NullObserver):
    """Writes the loss terms and the scores of each task for TensorBoard (extra ``tensorboard``)."""

    def __init__(self, folder: Path, every: int) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                '--tensorboard needs the package tensorboard: pip install "metareplay[tensorboard]"'
            ) from error
        self.open, self.every, self.offset = lambda: SummaryWriter(str(folder)), every, 0
        self.opened: Any = None

    @property
    def writer(self) -> Any:
        """Opened on first use: a run refuses a folder that is not empty."""
        if self.opened is None:
            self.opened = self.open()
        return self.opened

    def stage_begins(self, stage: Stage, iteration: int, iterations: int) -> None:
        self.offset = stage.number * iterations

    def step(self, step: Step) -> None:
        if step.iteration % self.every == 0:
            for name, value in step.terms._asdict().items():
                self.writer.add_scalar(f"loss/{name}", float(value), self.offset + step.iteration)

    def stage_ends(self, stage: Stage, scores: Sequence[float]) -> None:
        for index, score in enumerate(scores):
            self.writer.add_scalar(f"given/task-{index}", score, stage.number)

    def close(self) -> None:
        if self.opened is not None:
            self.opened.close()


@final
class ObserverList:
    """Passes every event on to several observers."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = observers

    def message(self, text: str) -> None:
        for observer in self.observers:
            observer.message(text)

    def stage_begins(self, stage: Stage, iteration: int, iterations: int) -> None:
        for observer in self.observers:
            observer.stage_begins(stage, iteration, iterations)

    def step(self, step: Step) -> None:
        for observer in self.observers:
            observer.step(step)

    def stage_ends(self, stage: Stage, scores: Sequence[float]) -> None:
        for observer in self.observers:
            observer.stage_ends(stage, scores)

    def close(self) -> None:
        for observer in self.observers:
            observer.close()
