"""Streams without boundaries: an estimator that detects new tasks by itself, example by example or in batches."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import log
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from metareplay.arrays import Inputs, Targets, inputs_and_targets, plain_labels, to_real_targets
from metareplay.data.frame_examples import training_examples
from metareplay.data.frames import is_frame
from metareplay.errors import ConfigError, DataError
from metareplay.estimators.base import Array, ContinualEstimator
from metareplay.streams.detectors import Reference
from metareplay.streams.follower import Follower
from metareplay.streams.report import StreamEvent, StreamReport
from metareplay.streams.settings import SIGNALS, StreamSettings

NAME = "stream"
"""Under which references of signals are stored with the task statistics."""


@dataclass(frozen=True)
class StreamExamples:
    """Inputs (N, ...) and their labels, or targets (N, D)."""

    x: Tensor
    y: list[Hashable] | Tensor

    def __len__(self) -> int:
        return len(self.x)


class StreamedTasks:
    """An estimator as what follows a stream needs it."""

    def __init__(self, estimator: "StreamingEstimator") -> None:
        self.estimator = estimator
        self.known = estimator.inputs
        """How data frames become inputs: the first batch decides."""

    @property
    def tasks(self) -> Sequence[Any]:
        return self.estimator.tasks

    def examples(self, x: Inputs, y: Targets | None) -> StreamExamples:
        """A batch of the stream."""
        estimator = self.estimator
        plain = training_examples(x, y, self.known, fresh=not self.known and estimator.learner is None)
        self.known = plain.known
        shape = estimator.learner.input_shape if estimator.learner else None
        inputs, raw = inputs_and_targets(plain.x, plain.y, shape)
        targets: list[Hashable] | Tensor = (
            plain_labels(raw) if estimator.problem == "classification" else to_real_targets(raw)
        )
        if len(targets) != len(inputs):
            raise DataError(f"{len(inputs)} inputs but {len(targets)} targets; both need one row per example")
        return StreamExamples(inputs, targets)

    def joined(self, parts: Sequence[StreamExamples]) -> StreamExamples:
        if len(parts) == 1:
            return parts[0]
        x, targets = torch.cat([part.x for part in parts]), [part.y for part in parts if isinstance(part.y, Tensor)]
        if targets:
            return StreamExamples(x, torch.cat(targets))
        return StreamExamples(x, [label for part in parts for label in part.y])

    def part(self, examples: StreamExamples, rows: Tensor | slice) -> StreamExamples:
        x, y = examples.x[rows], examples.y
        if isinstance(y, Tensor):
            return StreamExamples(x, y[rows])
        return StreamExamples(x, y[rows] if isinstance(rows, slice) else [y[row] for row in rows.tolist()])

    def learn(self, examples: StreamExamples) -> str:
        estimator, number = self.estimator, len(self.tasks)
        while (name := f"task-{number}") in estimator.task_names:
            number += 1
        estimator.learn_task(examples.x, examples.y, name=name)
        estimator.inputs = self.known
        return name

    def refine(self, task: int, examples: StreamExamples) -> None:
        self.estimator.update_task(self.name(task), examples.x, examples.y)

    def name(self, task: int) -> str:
        return self.estimator.task_names[task]

    def signals(self, examples: StreamExamples, task: int) -> dict[str, Tensor]:
        return {name: values.clamp(0, 1) for name, values in self.estimator.stream_signals(examples, task).items()}

    def references(self, task: int) -> dict[str, Reference]:
        stored = self.estimator.stored_statistics().of(NAME, len(self.tasks))[task]
        return {name: Reference(*values.tolist()) for name, values in stored.items()}

    def remember(self, task: int, references: dict[str, Reference]) -> None:
        statistics = self.estimator.stored_statistics()
        stored = list(statistics.of(NAME, len(self.tasks)))
        stored[task] = {name: torch.tensor(values, dtype=torch.float64) for name, values in references.items()}
        statistics.put(NAME, stored)


class Stream:
    """A stream that a model learns from; boundaries between tasks are unknown.

    >>> stream = Stream(model, {"window": 50})                        # doctest: +SKIP
    >>> for X, y in batches:                                          # doctest: +SKIP
    ...     stream.learn_many(X, y)
    >>> stream.finish().events                                        # doctest: +SKIP
    """

    def __init__(
        self,
        model: "StreamingEstimator",
        settings: StreamSettings | Mapping[str, Any] | None = None,
        *,
        on_event: Callable[[StreamEvent], None] | None = None,
    ) -> None:
        self.model, self.settings = model, StreamSettings.of(settings)
        model.check_streams(self.settings)
        self._tasks = StreamedTasks(model)
        self._follower = Follower(self._tasks, self.settings, on_event)
        self._rows: list[tuple[Any, Any]] = []
        """Single examples that were not looked at yet."""
        self._frames: list[tuple[Any, Any]] = []
        """Data frames before the first task: columns are described by all of its rows."""

    @property
    def events(self) -> list[StreamEvent]:
        """What was detected and done so far."""
        return self._follower.events

    def learn_many(self, X: Inputs, y: Targets | None = None) -> list[StreamEvent]:
        """See a batch of examples; returns what was detected and done."""
        before = len(self.events)
        self._see_rows()
        self._see(X, y)
        return self.events[before:]

    def learn_one(self, x: Any, y: Any) -> list[StreamEvent]:
        """See one example: an array, or a mapping from the names of features to values, as in river."""
        before = len(self.events)
        self._rows.append((x, y))
        if len(self._rows) >= self.settings.window:
            self._see_rows()
        return self.events[before:]

    def predict_one(self, x: Any) -> Hashable | float | None:
        """The label or target of one input; None before the first task has been learned."""
        if not self.model.tasks:
            return None
        predicted: Hashable | float = self.model.predict(_batch([x]))[0]
        return predicted.item() if isinstance(predicted, np.generic) else predicted

    def finish(self) -> StreamReport:
        """The stream has ended: learn what was gathered of a new task, if it is enough."""
        self._see_rows()
        self._see_frames()
        return self._follower.finish()

    def _see(self, x: Any, y: Any) -> None:
        if not is_frame(x) or self._tasks.known or self.model.tasks:
            self._follower.learn_many(self._tasks.examples(x, y))
            return
        self._frames.append((x, y))
        if sum(len(frame) for frame, _ in self._frames) >= self.settings.grace:
            self._see_frames()

    def _see_rows(self) -> None:
        if self._rows:
            rows, self._rows = self._rows, []
            self._see(_batch([x for x, _ in rows]), [y for _, y in rows])

    def _see_frames(self) -> None:
        if self._frames:
            frames, self._frames = self._frames, []
            self._follower.learn_many(self._tasks.examples(*_joined_frames(frames)))


class StreamingEstimator(ContinualEstimator):
    """An estimator that can also learn from streams without boundaries."""

    _stream: Stream | None = None

    def learn_stream(
        self,
        batches: Iterable[tuple[Inputs, Targets]],
        *,
        settings: StreamSettings | Mapping[str, Any] | None = None,
        on_event: Callable[[StreamEvent], None] | None = None,
    ) -> StreamReport:
        """Learn from batches (X, y) of tasks that come one after another, and may return, without saying so."""
        stream = Stream(self, settings, on_event=on_event)
        for batch in batches:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise DataError("a batch of the stream is not a pair; give pairs (X, y)")
            stream.learn_many(*batch)
        return stream.finish()

    def learn_one(self, x: Any, y: Any) -> Self:
        """See one example of a stream, as in river; for settings other than the defaults, use ``Stream``."""
        if self._stream is None:
            self._stream = Stream(self)
        self._stream.learn_one(x, y)
        return self

    def predict_one(self, x: Any) -> Hashable | float | None:
        """The label or target of one input, as in river; None before the first task has been learned."""
        return Stream(self).predict_one(x) if self._stream is None else self._stream.predict_one(x)

    def check_streams(self, settings: StreamSettings) -> None:
        """Refuse what cannot follow a stream."""
        if "strangeness" in settings.signals and not self.config.statistics.collect:
            others = ", ".join(name for name in SIGNALS if name != "strangeness")
            raise ConfigError(
                "the signal strangeness needs statistics of every task, but statistics.collect is false; "
                f"set it to true, or choose other signals: {others}"
            )

    def stored_statistics(self) -> Any:
        """Where references are stored."""
        return self._trained().predictor.task_statistics

    def stream_signals(self, examples: StreamExamples, task: int) -> dict[str, Tensor]:
        """What tells whether examples belong to a task (N,), by name."""
        raise NotImplementedError

    def learn_task(self, X: Inputs, y: Any = None, *, name: str | None = None, progress: bool = False) -> Self:
        """Learn one more task."""
        raise NotImplementedError

    def predict(self, X: Inputs) -> Array:
        """The label or target of each input."""
        raise NotImplementedError


def label_signals(labels: Sequence[Hashable], classes: Sequence[Hashable], probabilities: Tensor) -> Tensor:
    """How improbable labels are: 1 - p(label), and 1 for labels that were never learned; (N, C) -> (N,)."""
    columns = {label: column for column, label in enumerate(classes)}
    losses = torch.ones(len(labels), dtype=torch.float64)
    for row, label in enumerate(labels):
        if label in columns:
            losses[row] = 1 - probabilities[row, columns[label]]
    return losses


def entropy_share(entropies: Tensor, classes: int) -> Tensor:
    """Entropies as a share of the largest possible; (N,)."""
    return entropies / log(classes) if classes > 1 else torch.zeros_like(entropies)


def strange(known: Any) -> dict[str, Tensor]:
    """The signal of inputs that a task does not know; none without statistics."""
    return {} if known is None else {"strangeness": torch.from_numpy(~np.asarray(known)).double()}


def _batch(rows: Sequence[Any]) -> Any:
    """Single inputs as a batch; mappings as a data frame if pandas is installed, so that columns have names."""
    if not isinstance(rows[0], Mapping):
        return np.stack([np.asarray(row) for row in rows])  # (N, ...)
    try:
        import pandas
    except ImportError:
        names = list(rows[0])
        try:
            return np.array([[row[name] for name in names] for row in rows], dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                "examples with text, dates or varying features need pandas; install it with: pip install pandas, or "
                "give the same numeric features in every example"
            ) from error
    return pandas.DataFrame([dict(row) for row in rows])


def _joined_frames(frames: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Batches of data frames as one; ``y`` is the name of a column in all of them, or labels."""
    x = frames[0][0] if len(frames) == 1 else _concatenated([frame for frame, _ in frames])
    if isinstance(frames[0][1], str):
        return x, frames[0][1]
    return x, [label for _, y in frames for label in (y.to_list() if hasattr(y, "to_list") else list(y))]


def _concatenated(frames: Sequence[Any]) -> Any:
    """By the library that the frames are of."""
    library = import_module(type(frames[0]).__module__.partition(".")[0])
    joined = library.concat_tables(frames) if hasattr(library, "concat_tables") else library.concat(frames)
    return joined.reset_index(drop=True) if hasattr(joined, "reset_index") else joined
