"""What a server does, apart from HTTP: one live model, one queue, counters and the log."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metareplay.errors import DataError
from metareplay.estimators.classifier import ContinualClassifier
from metareplay.estimators.loading import AnyEstimator
from metareplay.files import real_path
from metareplay.serve.answers import AUDIT_NOTE, as_json, describe_tasks
from metareplay.serve.batching import Batcher, Question
from metareplay.serve.columns import described_columns, typical_inputs
from metareplay.serve.inputs import Asked, csv_inputs, image_form, image_inputs, json_body, row_inputs
from metareplay.serve.jobs import Jobs, Wanted
from metareplay.serve.learning import Examples
from metareplay.serve.live import Generation, LiveModel
from metareplay.serve.metrics import Metrics
from metareplay.serve.prediction_log import PredictionLog
from metareplay.serve.refusals import RequestError
from metareplay.serve.settings import ServeSettings
from metareplay.version import __version__

INLINE = 32 * 1024
"""Bodies up to this many bytes are decoded in the event loop: a thread would take longer to wake up."""
Upload = tuple[str, bytes]
"""A file's name and content."""


class Service:
    """A model that answers."""

    def __init__(self, folder: Path, settings: ServeSettings) -> None:
        self.settings, self.started = settings, time.time()
        self.live = LiveModel(folder, settings)
        self.metrics = Metrics(
            lambda: self.batcher.depth,
            lambda: self.live.current.number,
            lambda: len(self.live.current.estimator.tasks),
        )
        self.batcher = Batcher(settings.queue, settings.batch, self.metrics.batch)
        self._audited: dict[str, Any] | None = None
        self.jobs = Jobs(self.live)
        self.log = None if settings.log is None else PredictionLog(Path(settings.log), with_inputs=settings.log_inputs)

    async def watch(self) -> None:
        """Look at the folder from time to time, until cancelled."""
        while True:
            await asyncio.sleep(self.settings.watch)
            await asyncio.to_thread(self.live.refresh)

    # Predictions.

    async def predict_json(self, content: bytes, task: str | None, criterion: str | None) -> bytes:
        """The answer to ``{"rows": [...]}``, which may name task and criterion too."""
        body = json_body(content) if len(content) <= INLINE else await asyncio.to_thread(json_body, content)
        if isinstance(body, list):
            body = {"rows": body}
        if not isinstance(body, dict) or "rows" not in body:
            raise DataError('send the inputs as {"rows": [...]}: objects with the names of columns, or arrays')
        if unknown := [key for key in body if key not in ("rows", "task", "criterion")]:
            raise DataError(f"{unknown[0]!r} is unknown; besides rows, task and criterion are allowed")
        task, criterion = (
            _text(body.get(key, given), key) for key, given in (("task", task), ("criterion", criterion))
        )
        generation, rows = self.live.current, body["rows"]
        if len(content) <= INLINE:
            asked = row_inputs(rows, generation.estimator, self.settings)
        else:
            asked = await asyncio.to_thread(row_inputs, rows, generation.estimator, self.settings)
        return await self._answer(Question(generation, task, criterion), asked)

    async def predict_csv(self, content: bytes, task: str | None, criterion: str | None) -> bytes:
        """The answer to rows of a CSV text."""
        generation = self.live.current
        asked = await asyncio.to_thread(csv_inputs, content, generation.estimator, self.settings)
        return await self._answer(Question(generation, task, criterion), asked)

    async def predict_images(self, images: Sequence[Upload], task: str | None, criterion: str | None) -> bytes:
        """The answer to PNG or JPEG files."""
        generation = self.live.current
        asked = await asyncio.to_thread(image_inputs, images, generation.estimator, self.settings)
        return await self._answer(Question(generation, task, criterion), asked)

    async def _answer(self, question: Question, asked: Asked) -> bytes:
        began, estimator = time.perf_counter(), question.generation.estimator
        _check_names(question, estimator)
        rows = await self.batcher.ask(question, asked.x)
        if asked.files is not None:
            rows = [{"file": file, **row} for file, row in zip(asked.files, rows, strict=True)]
        self.metrics.answered(rows, time.perf_counter() - began)
        if self.log is not None and not self.log.write(rows, asked.x, question.generation):
            self.metrics.log_failures.inc()
        return as_json(
            {"generation": question.generation.number, "predictions": rows, "warnings": list(asked.warnings)}
        )

    # A further task.

    def refuse_read_only(self) -> None:
        """Before anything is read."""
        if self.settings.read_only:
            raise RequestError(403, "this server is read-only: to add tasks, start it with --writable")

    async def learn(self, examples: Examples, asked: Wanted) -> dict[str, Any]:
        """Begin to learn a task in the background."""
        return await self.jobs.begin(examples, asked)

    # Facts.

    def health(self) -> dict[str, Any]:
        """Whether the server answers, and with which model."""
        current = self.live.current
        return {
            "status": "ok",
            "generation": current.number,
            "since": current.since,
            "tasks": len(current.estimator.tasks),
            "problem": self.live.problem,
            "version": __version__,
        }

    def model(self) -> dict[str, Any]:
        """What a client needs to know to send requests."""
        generation = self.live.current
        estimator, settings = generation.estimator, self.settings
        form = image_form(estimator, settings)
        return {
            "name": real_path(self.live.folder).name,
            "generation": generation.number,
            "problem": estimator.problem,
            "method": estimator.config.method,
            "network": estimator.config.network,
            "input_shape": list(estimator.input_shape),
            "columns": described_columns(estimator),
            "typical": typical_inputs(estimator),
            "gaps": "fill" in estimator.inputs,
            "label": estimator.inputs.get("label"),
            "learns_images": estimator.inputs.get("kind") == "images",
            "image": None if form is None else form._asdict(),
            "classes": estimator.classes_.tolist() if isinstance(estimator, ContinualClassifier) else None,
            "tasks": describe_tasks(estimator),
            "read_only": settings.read_only,
            "limits": {
                "max_body": settings.max_body,
                "max_rows": settings.max_rows,
                "max_pixels": settings.max_pixels,
                "timeout": settings.timeout,
                "queue": settings.queue,
            },
            "version": __version__,
        }

    def tasks(self) -> dict[str, Any]:
        """The tasks of the model that answers."""
        generation = self.live.current
        return {"generation": generation.number, "tasks": describe_tasks(generation.estimator)}

    def audit(self) -> dict[str, Any]:
        """How far later tasks have moved each task."""
        generation: Generation = self.live.current
        if self._audited is None or self._audited["generation"] != generation.number:
            tasks = [entry.as_dict() for entry in generation.estimator.audit()]
            self._audited = {"generation": generation.number, "note": AUDIT_NOTE, "tasks": tasks}
        return self._audited


def _text(value: Any, key: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise DataError(f"{key!r} must be a name, got {value!r}")
    return value


def _check_names(question: Question, estimator: AnyEstimator) -> None:
    """Refuse a task that the model does not have."""
    if question.task is not None and question.task not in estimator.task_names:
        known = ", ".join(map(repr, estimator.task_names[:20]))
        raise RequestError(404, f"the task {question.task!r} is unknown; the model has learned {known}")
