"""Whether lists and matrices of results fit the number of tasks and labels, which reports rely on."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

MOST_TASKS = 100_000


class TrainingLine(BaseModel):
    """A line of ``metrics.jsonl`` about one moment of training; terms of the loss that it does not have are None."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task: int = Field(ge=0, le=MOST_TASKS)
    iteration: int = Field(ge=0, le=10**12)
    loss: float | None = None
    data: float | None = None
    prior: float | None = None
    replay: float | None = None


class Sized(NamedTuple):
    """A list, and how many entries it must have unless it is empty."""

    name: str
    values: Sequence[Any]
    size: int


def wrong_size(results: Any) -> str | None:
    """The first list of some results that has too many or too few entries, in words; None if all fit."""
    for name, values, size in _sizes(results):
        if len(values) not in (0, size):
            return f"{name} has {len(values)} entries instead of {size}"
    longest = max((len(row) for row in results.tgiven_matrix or []), default=0)
    if max(longest, len(results.tgiven_matrix or [])) > results.num_tasks:
        return f"tgiven_matrix is larger than {results.num_tasks} x {results.num_tasks}"
    return None


def _sizes(results: Any) -> Iterator[Sized]:
    tasks, labels = results.num_tasks, results.labels
    yield Sized("task_names", results.task_names, tasks)
    yield Sized("tgiven_fine_tuned", results.tgiven_fine_tuned or [], tasks)
    yield Sized("continual.inferred_fine_tuned", getattr(results.continual, "inferred_fine_tuned", None) or [], tasks)
    for criterion, rows in (results.task_confusion or {}).items():
        yield from _square(f"task_confusion.{criterion}", rows, tasks)
    if labels is not None:
        yield from _square("labels.confusion", labels.confusion, len(labels.labels))
    for part in ("task_probabilities", "unknown", "chance", "statistics"):
        for name, values in vars(getattr(results, part) or _NOTHING).items():
            if isinstance(values, list):
                yield Sized(f"{part}.{name}", values, tasks)
    for name, reference in vars(results.references or _NOTHING).items():
        yield Sized(f"references.{name}.by_task", [] if reference is None else reference.by_task, tasks)


class _Nothing:
    """Has no values."""


_NOTHING = _Nothing()


def _square(name: str, rows: Sequence[Sequence[Any]], size: int) -> Iterator[Sized]:
    yield Sized(name, rows, size)
    yield from (Sized(f"{name}.{index}", row or [None] * (size + 1), size) for index, row in enumerate(rows))
