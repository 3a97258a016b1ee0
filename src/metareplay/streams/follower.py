"""Follows a stream: gathers the examples of a new task, learns it, and detects when another one begins.

A new task is gathered for a grace period and learned from what was gathered. Then every further example is compared
with the task by a few signals; when one rises, a boundary is announced, and by the next few examples a known task is
recognised, the alarm is dismissed, or a new task is gathered. Examples are kept only until their task is learned.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from metareplay.streams.detectors import DETECTORS, Detector, Reference, change_point
from metareplay.streams.report import StreamEvent, StreamReport
from metareplay.streams.settings import StreamSettings

CONVINCING = 3
"""Windows of examples after which more of them make a task's limits no narrower: its networks may have moved."""


class Examples(Protocol):
    """Some examples of a stream, in order."""

    def __len__(self) -> int: ...


AnyExamples = TypeVar("AnyExamples", bound=Examples)


class StreamModel(Protocol[AnyExamples]):
    """What learns tasks, and tells how well examples fit them."""

    @property
    def tasks(self) -> Sequence[Any]:
        """The tasks learned so far."""
        ...

    def joined(self, parts: Sequence[AnyExamples]) -> AnyExamples:
        """All of them, in order."""
        ...

    def part(self, examples: AnyExamples, rows: Tensor | slice) -> AnyExamples:
        """Some of them."""
        ...

    def learn(self, examples: AnyExamples) -> str:
        """Learn a new task, and return its name."""
        ...

    def refine(self, task: int, examples: AnyExamples) -> None:
        """Update a known task."""
        ...

    def name(self, task: int) -> str:
        """The name of a task."""
        ...

    def signals(self, examples: AnyExamples, task: int) -> dict[str, Tensor]:
        """What tells whether examples belong to a task: each in [0, 1], by name (N,)."""
        ...

    def references(self, task: int) -> dict[str, Reference]:
        """What the signals are like on a task's own examples."""
        ...

    def remember(self, task: int, references: dict[str, Reference]) -> None:
        """Store them."""
        ...


class Watch(NamedTuple):
    """A task that is being followed."""

    task: int
    references: dict[str, Reference]
    detectors: dict[str, Detector]


class Follower(Generic[AnyExamples]):
    """The state of a stream: either a task is followed, or the examples of a new one are gathered."""

    def __init__(
        self,
        model: StreamModel[AnyExamples],
        settings: StreamSettings,
        on_event: Callable[[StreamEvent], None] | None = None,
    ) -> None:
        self.model, self.settings, self.on_event = model, settings, on_event
        self.events: list[StreamEvent] = []
        self.seen = 0
        self.gathered: list[AnyExamples] = []
        """Examples that belong to the present segment and have not been learned."""
        self.recent: list[AnyExamples] = []
        """The most recent examples of a task that is followed: a change may have begun among them."""
        self.watch: Watch | None = None
        self.fresh: int | None = 0 if len(model.tasks) else None
        """Where the examples begin by which it is decided whether the present segment is a known task: after an alarm,
        those that did not contribute to it; None if it has been decided."""
        self.left: int | None = None
        """The task that was followed before."""

    def learn_many(self, examples: AnyExamples) -> list[StreamEvent]:
        """See some more examples; returns what was detected and done."""
        before = len(self.events)
        step = self.settings.window
        for start in range(0, len(examples), step):
            part = self.model.part(examples, slice(start, min(start + step, len(examples))))
            self.seen += len(part)
            if self.watch is None:
                self._gather(part)
            else:
                self._follow(part)
        return self.events[before:]

    def finish(self) -> StreamReport:
        """The stream has ended: learn what was gathered of a new task, if it is enough."""
        count = sum(map(len, self.gathered))
        if self.watch is None and count:
            if self.fresh is not None and (task := self._recognised(self._since(self.fresh))) is not None:
                self._return_to(task)
            elif count >= self.settings.fewest:
                self._learn_gathered()
            else:
                self._tell("unlearned")
        self.gathered, self.recent = [], []
        return StreamReport(self.events, self.seen)

    # A segment that may be new.

    def _gather(self, part: AnyExamples) -> None:
        self.gathered.append(part)
        count, settings = sum(map(len, self.gathered)), self.settings
        task = None
        if self.fresh is not None and count >= self.fresh + settings.window:
            task, self.fresh = self._recognised(self._since(self.fresh)), None
        if task is None and count >= settings.grace:
            task = self._recognised(self._since(0))  # by all of them: the first may have been mixed
            if task is None:
                self._learn_gathered()
        if task is not None:
            self._return_to(task)

    def _since(self, first: int) -> AnyExamples:
        """The gathered examples from one on; all if there are no more."""
        examples = self.model.joined(self.gathered)
        return self.model.part(examples, slice(first, len(examples))) if first < len(examples) else examples

    def _recognised(self, examples: AnyExamples) -> int | None:
        """The known task that these examples fit, the best one if there are several."""
        fitting: dict[int, float] = {}
        for task in range(len(self.model.tasks)):
            references = self._monitored(self.model.references(task))
            if not references:
                continue
            means = {name: float(values.mean()) for name, values in self.model.signals(examples, task).items()}
            count = min(len(examples), CONVINCING * self.settings.window)
            if all(
                means[name] <= reference.highest_mean(count, self.settings.known)
                for name, reference in references.items()
            ):
                fitting[task] = sum(means[name] for name in references)
        return min(fitting, key=lambda task: fitting[task]) if fitting else None

    def _monitored(self, references: dict[str, Reference]) -> dict[str, Reference]:
        return {name: references[name] for name in self.settings.signals if name in references}

    def _learn_gathered(self) -> None:
        examples = self.model.joined(self.gathered)
        held_out = max(1, int(self.settings.held_out * len(examples)))
        rows = torch.arange(len(examples)) % max(2, len(examples) // held_out) == 0  # spread over the segment
        name = self.model.learn(self.model.part(examples, (~rows).nonzero().squeeze(1)))
        task = len(self.model.tasks) - 1
        values = self.model.signals(self.model.part(examples, rows.nonzero().squeeze(1)), task)
        self.model.remember(task, {signal: Reference.of(of_task) for signal, of_task in values.items()})
        self._tell("learned", name)
        self.left = None
        self._begin(task)

    def _return_to(self, task: int) -> None:
        gathered = self.gathered
        self._tell("dismissed" if task == self.left else "returned", self.model.name(task))
        self._begin(task)
        if self.settings.refine:
            self.gathered = gathered

    def _begin(self, task: int) -> None:
        """Follow a task."""
        references = self._monitored(self.model.references(task))
        make = DETECTORS[self.settings.detector]
        detectors: dict[str, Detector] = {
            name: make(reference, self.settings) for name, reference in references.items()
        }
        self.watch, self.gathered, self.recent, self.fresh = Watch(task, references, detectors), [], [], None

    # A task that is followed.

    def _follow(self, part: AnyExamples) -> None:
        watch = self.watch
        assert watch is not None
        self.recent.append(part)
        values = self.model.signals(part, watch.task)
        for row in range(len(part)):
            alarms = [name for name, detector in watch.detectors.items() if detector.update(float(values[name][row]))]
            if alarms:
                self._announce(watch, alarms[0], len(part) - 1 - row)
                return
        while sum(map(len, self.recent)) - len(self.recent[0]) >= 2 * self.settings.window:
            self._settle(self.recent.pop(0))

    def _settle(self, part: AnyExamples) -> None:
        """Examples that certainly belong to the task that is followed."""
        if not self.settings.refine or self.watch is None:
            return
        self.gathered.append(part)
        if sum(map(len, self.gathered)) >= self.settings.grace:
            self.model.refine(self.watch.task, self.model.joined(self.gathered))
            self.gathered = []
            self._tell("refined", self.model.name(self.watch.task))

    def _announce(self, watch: Watch, signal: str, unseen: int) -> None:
        """A change: the examples since it began are the first of another task, or the alarm was false."""
        recent = self.model.joined(self.recent)
        values = self.model.signals(recent, watch.task)[signal]
        began = change_point(values[: len(recent) - unseen], watch.references[signal])
        first = self.seen - len(recent) + began
        self._tell("boundary", self.model.name(watch.task), first, self.seen - unseen)
        since = self.model.part(recent, slice(began, len(recent)))
        self.watch, self.recent, self.gathered, self.left = None, [], [since], watch.task
        self.fresh = len(since) - unseen

    def _tell(self, kind: Any, task: str | None = None, began: int | None = None, example: int | None = None) -> None:
        event = StreamEvent(kind, self.seen if example is None else example, task, began)
        self.events.append(event)
        if self.on_event is not None:
            self.on_event(event)
