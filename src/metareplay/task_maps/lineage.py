"""What became of a model's tasks: a number for each that never changes, revisions, and when outputs were added."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Lineage:
    """The history of a model's tasks, as far as later steps depend on it."""

    numbers: list[int] = field(default_factory=list)
    """A number for each task, from which its random numbers are drawn; it stays when an earlier task is removed."""
    revisions: list[int] = field(default_factory=list)
    """How often each task was updated with further data."""
    growth: list[tuple[int, int]] = field(default_factory=list)
    """When the network got outputs: the number of tasks before, and all outputs afterwards."""
    added: int = 0
    """Tasks that were ever added."""

    def add(self) -> None:
        """One more task."""
        self.numbers.append(self.added)
        self.revisions.append(0)
        self.added += 1

    def number_of(self, task: int) -> int:
        """The number of a task; of one that was not added, its index."""
        return self.numbers[task] if 0 <= task < len(self.numbers) else task

    def remove(self, task: int) -> None:
        """A task is gone; later ones move down."""
        del self.numbers[task], self.revisions[task]
        self.growth = [(tasks - (tasks > task), outputs) for tasks, outputs in self.growth]

    def growth_at(self, tasks: int) -> Iterator[int]:
        """The outputs to grow to while there are this many tasks, one after another."""
        return (outputs for before, outputs in self.growth if before == tasks)

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        growth = [list(step) for step in self.growth]
        return {"numbers": self.numbers, "revisions": self.revisions, "growth": growth, "added": self.added}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Lineage":
        """The reverse of ``facts``."""
        growth = [(int(tasks), int(outputs)) for tasks, outputs in facts["growth"]]
        return cls(list(facts["numbers"]), list(facts["revisions"]), growth, int(facts["added"]))
