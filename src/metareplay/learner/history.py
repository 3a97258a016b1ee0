"""What happened to a stored model, step by step: ``history.json``, apart from the model's own bytes."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from metareplay.errors import CheckpointError
from metareplay.texts import read_json_file

HISTORY = "history.json"


class HistoryEntry(BaseModel):
    """One change of a stored model. Generation and date are filled in when it is stored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    verb: str
    """What was done: learn, add-task, update-task, remove-task, ..."""
    tasks: tuple[str, ...] = ()
    """The names of the tasks concerned."""
    examples: int | None = None
    fingerprint: str | None = None
    """Of the data."""
    figures: dict[str, float] = {}
    """Such as held-out accuracy."""
    facts: dict[str, Any] = {}
    """Anything else that JSON can hold."""
    generation: int = 0
    date: str = ""
    """In UTC, as 2026-01-31T12:00:00Z."""

    @field_validator("facts")
    @classmethod
    def _numbered(cls, facts: dict[str, Any]) -> dict[str, Any]:
        """Generations are numbers: others are looked up by them."""
        for name in ("previous", "restored"):
            if facts.get(name) is not None and not isinstance(facts[name], int):
                raise ValueError(f"{name} must be the number of a generation, not {facts[name]!r}")
        if not _are_periods(facts.get("periods", {})):
            raise ValueError(f"periods must name the first and last day of columns, not {facts['periods']!r}")
        return facts

    def dated(self, generation: int) -> "HistoryEntry":
        """The entry as it is stored."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return self.model_copy(update={"generation": generation, "date": self.date or now})


def _are_periods(value: Any) -> bool:
    """Whether this names two days for each column, as JSON holds them."""
    return isinstance(value, dict) and all(
        isinstance(days, list | tuple) and len(days) == 2 and all(isinstance(day, str) for day in days)
        for days in value.values()
    )


def read_entries(folder: Path) -> list[HistoryEntry]:
    """All entries of the file; none if there is no file."""
    path = folder / HISTORY
    try:
        return [HistoryEntry.model_validate(entry) for entry in read_json_file(path)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, ValidationError) as error:
        words = str(error).splitlines()[0]
        raise CheckpointError(
            f"{path} is damaged ({words}); repair it, or remove it to continue without a history"
        ) from error


def history_text(entries: Sequence[HistoryEntry]) -> str:
    """The content of the file."""
    return json.dumps([entry.model_dump(mode="json") for entry in entries], indent=1) + "\n"
