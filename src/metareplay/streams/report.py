"""What happened in a stream, and how well its boundaries were detected."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from math import inf
from typing import Any, Literal

Kind = Literal["boundary", "learned", "returned", "dismissed", "refined", "unlearned"]


@dataclass(frozen=True)
class StreamEvent:
    """Something that was detected, or done."""

    kind: Kind
    """``boundary``: a change was detected; ``learned``: a new task; ``returned``: a known task is recognised;
    ``dismissed``: after all, the task goes on; ``refined``: a known task was updated; ``unlearned``: the stream ended
    with too few examples of a new task."""
    example: int
    """How many examples had been seen."""
    task: str | None = None
    """The task it concerns."""
    began: int | None = None
    """The example with which the change is thought to have begun."""

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class StreamReport:
    """The events of a stream."""

    events: list[StreamEvent]
    examples: int

    def of(self, kind: Kind) -> list[StreamEvent]:
        """The events of one kind."""
        return [event for event in self.events if event.kind == kind]

    def against(self, boundaries: Sequence[int]) -> "Detections":
        """How well true boundaries (the number of the first example of each later segment) were noticed."""
        return detections([event.example for event in self.changes()], boundaries)

    def changes(self) -> list[StreamEvent]:
        """The boundaries that were not dismissed."""
        kept: list[StreamEvent] = []
        for event in self.events:
            if event.kind == "boundary":
                kept.append(event)
            elif event.kind == "dismissed":
                kept.pop()
        return kept


@dataclass(frozen=True)
class Detections:
    """True boundaries that were noticed, missed, and alarms without a boundary."""

    delays: list[int] = field(default_factory=list)
    """Examples from each boundary that was noticed to its alarm."""
    missed: int = 0
    false_alarms: int = 0


def detections(alarms: Sequence[int], boundaries: Sequence[int]) -> Detections:
    """The first alarm after a boundary and before the next one notices it; all other alarms are false."""
    delays = []
    for start, stop in pairwise([*sorted(boundaries), inf]):
        inside = [alarm for alarm in alarms if start <= alarm < stop]
        delays += [int(inside[0] - start)] if inside else []
    return Detections(delays, len(boundaries) - len(delays), len(alarms) - len(delays))
