"""Which outputs of a network belong to which task."""

from enum import StrEnum


class HeadLayout(StrEnum):
    """Which of the network's outputs belong to a task."""

    SINGLE = "single"
    """Every task uses the first outputs, one per class: it has its own weights, or shares its classes."""
    MULTI = "multi"
    """Every task adds its own outputs, with its own softmax."""
    GROWING = "growing"
    """Every task adds outputs to one softmax over all classes so far."""
    SHARED = "shared"
    """One softmax over the classes of all tasks from the start, so their number must be known."""

    @property
    def one_softmax(self) -> bool:
        """Whether the classes of different tasks compete."""
        return self in (HeadLayout.GROWING, HeadLayout.SHARED)
