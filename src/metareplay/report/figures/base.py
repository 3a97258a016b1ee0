"""What a drawing is: a figure of some runs with the words around it."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from metareplay.report.figures.canvas import Theme
from metareplay.report.runs import Group


class Drawing(NamedTuple):
    """A figure with its name, its title and a sentence on how to read it."""

    name: str
    title: str
    caption: str
    figure: Figure
    wide: bool = False


Draw = Callable[[Sequence[Group], Theme], Iterator[Drawing]]


class Kind(NamedTuple):
    """A kind of drawing: what it shows, how it is drawn, and which of a run's arrays it needs."""

    description: str
    draw: Draw
    together: bool = False
    """Whether several methods are drawn side by side; otherwise each gets its own drawings."""
    needs: tuple[str, ...] = ()
    """The arrays of ``predictive.safetensors`` that it shows."""


def mean_remark(group: Group) -> str:
    """What to add to a caption if the figure shows a mean."""
    return " Mean over seeds." if len(group.runs) > 1 else ""
