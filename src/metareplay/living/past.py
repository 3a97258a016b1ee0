"""What led to the present state of a model: its history without what was undone."""

from collections.abc import Sequence
from pathlib import Path

from metareplay.errors import CheckpointError
from metareplay.learner.history import HISTORY
from metareplay.learner.store import HistoryEntry, read_history

UNDO, REMOVE, RENAME = "undo", "remove-task", "rename-task"


def past_of(folder: Path, generation: int) -> list[HistoryEntry]:
    """The changes that led to a generation of a model, from the first on; what was undone is not among them."""
    by_generation = {entry.generation: entry for entry in read_history(folder)}
    changes: list[HistoryEntry] = []
    while (entry := by_generation.get(generation)) is not None:
        before = entry.facts.get("restored" if entry.verb == UNDO else "previous", generation - 1)
        if before is None or not before < generation:
            raise CheckpointError(
                f"{folder / HISTORY} is damaged (generation {generation} came from {before}); repair it, or remove it "
                "to continue without a history"
            )
        if entry.verb != UNDO:
            changes.append(entry)
        generation = before
    return changes[::-1]


def examples_given(past: Sequence[HistoryEntry], verbs: Sequence[str]) -> dict[str, int]:
    """How many examples each task was given in all, by the verbs that learn one task, under its present name."""
    given: dict[str, int] = {}
    for entry in past:
        if entry.verb == RENAME and entry.tasks[0] in given:
            given[entry.tasks[1]] = given.pop(entry.tasks[0])
        elif entry.verb == REMOVE:
            given.pop(entry.tasks[0], None)
        elif entry.verb in verbs and len(entry.tasks) == 1 and entry.examples is not None:
            given[entry.tasks[0]] = given.get(entry.tasks[0], 0) + entry.examples
    return given


def present_names(past: Sequence[HistoryEntry], verbs: Sequence[str]) -> dict[str, HistoryEntry]:
    """The newest entry with one of these verbs for each task, under the task's present name."""
    newest: dict[str, HistoryEntry] = {}
    for entry in past:
        if entry.verb == RENAME and entry.tasks[0] in newest:
            newest[entry.tasks[1]] = newest.pop(entry.tasks[0])
        elif entry.verb == REMOVE:
            newest.pop(entry.tasks[0], None)
        elif entry.verb in verbs:
            newest |= dict.fromkeys(entry.tasks, entry)
    return newest
