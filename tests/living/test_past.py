"""The history of a model is read with care: anyone may have edited it."""

import json
from pathlib import Path
from typing import Any

import pytest

from metareplay.errors import CheckpointError
from metareplay.learner.history import HISTORY, HistoryEntry
from metareplay.living import past
from metareplay.living.past import past_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(past, "read_history", lambda place: _entries(place))
    return tmp_path


def _entries(folder: Path) -> list[HistoryEntry]:
    return [HistoryEntry.model_validate(entry) for entry in json.loads((folder / HISTORY).read_text())]


def write(folder: Path, *entries: dict[str, Any]) -> None:
    (folder / HISTORY).write_text(json.dumps(list(entries)))


def test_what_was_undone_is_no_part_of_it(folder: Path) -> None:
    write(
        folder,
        {"verb": "add-task", "tasks": ["a"], "generation": 1, "facts": {"previous": 0}},
        {"verb": "add-task", "tasks": ["b"], "generation": 2, "facts": {"previous": 1}},
        {"verb": "undo", "generation": 3, "facts": {"restored": 1}},
        {"verb": "add-task", "tasks": ["c"], "generation": 4, "facts": {"previous": 3}},
    )
    assert [entry.tasks for entry in past_of(folder, 4)] == [("a",), ("c",)]


@pytest.mark.parametrize(
    "entry",
    [
        {"verb": "add-task", "generation": 4, "facts": {"previous": 4}},
        {"verb": "undo", "generation": 4, "facts": {"restored": 7}},
        {"verb": "undo", "generation": 4, "facts": {"restored": None}},
    ],
)
def test_a_circle_or_a_gap_is_refused(folder: Path, entry: dict[str, Any]) -> None:
    write(folder, entry)
    with pytest.raises(CheckpointError, match="damaged"):
        past_of(folder, 4)


def test_generations_are_numbers() -> None:
    with pytest.raises(ValueError, match="must be the number of a generation, not '1970-01-01'"):
        HistoryEntry(verb="add-task", facts={"previous": "1970-01-01"})
