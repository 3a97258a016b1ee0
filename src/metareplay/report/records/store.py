"""Records in a folder: read all of them, add one. A repeated measurement replaces its own rows and no others."""

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from metareplay.errors import DataError
from metareplay.experiments.results import first_problem
from metareplay.files import write_atomically
from metareplay.locks import only_writer
from metareplay.report.records.base import SCHEMA, Record, Row
from metareplay.texts import read_json_file

LONGEST = 100
"""Characters of a file's name; longer ones end with a digest."""


def read_record(path: Path) -> Record:
    """Read and check one record."""
    advice = "measure again, or repair the file"
    try:
        content = read_json_file(path, nan=False)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}; {advice}") from error
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON ({error}); {advice}") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise DataError(f"{path} is not a record of measured figures with schema {SCHEMA}; {advice}")
    try:
        return Record.model_validate(content)
    except ValidationError as error:
        raise DataError(f"{path} is not a record of measured figures: {first_problem(error)}; {advice}") from error


def read_records(folder: Path) -> dict[str, Record]:
    """All records in a folder and its subfolders, by name: ``split-mnist/pr-bbb-lenet``."""
    paths = sorted(folder.rglob("*.json"))
    return {path.relative_to(folder).with_suffix("").as_posix(): read_record(path) for path in paths}


def place_of(group: str, *parts: str) -> str:
    """The name of a record: a group, which is its subfolder, and what was measured."""
    return f"{_slug(group)}/{_slug('-'.join(part for part in parts if part))}"


def _slug(text: str) -> str:
    plain = re.sub(r"[^a-z0-9.+_-]+", "-", text.lower()).strip("-.") or "record"
    if len(plain) <= LONGEST:
        return plain
    return f"{plain[: LONGEST - 9].rstrip('-.')}-{sha256(text.encode()).hexdigest()[:8]}"


def write_record(folder: Path, name: str, record: Record) -> Path:
    """Write a record; rows of an earlier one stay unless they are of the same seeds and labels."""
    path = folder / f"{name}.json"
    with only_writer(path.parent, wait=20, advice="repeat the command"):
        if path.exists():
            record = _joined(path, read_record(path), record)
        return write_atomically(path, record.text())


def _joined(path: Path, old: Record, new: Record) -> Record:
    if old.labels != new.labels:
        found, wanted = _words(old.labels), _words(new.labels)
        raise DataError(f"{path} is about {found}, not about {wanted}, and is not replaced; choose another folder")
    kept = [_whole(row, old) for row in old.rows if not any(_repeats(row, old, fresh, new) for fresh in new.rows)]
    if not kept:
        return new
    rows = sorted([*kept, *(_whole(row, new) for row in new.rows)], key=lambda row: row.seeds or [])
    seeds = sorted({seed for row in rows for seed in row.seeds or []})
    return new.model_copy(update={"rows": [_beyond(row, new) for row in rows], "seeds": seeds})


def _repeats(row: Row, old: Record, fresh: Row, new: Record) -> bool:
    """Whether a new row is of the same things as an old one, which may be a mean over several seeds."""
    seeds = [set(record.seeds if one.seeds is None else one.seeds) for one, record in ((row, old), (fresh, new))]
    return row.labels == fresh.labels and (bool(seeds[0] & seeds[1]) or seeds[0] == seeds[1])


def _whole(row: Row, record: Record) -> Row:
    """A row that says by itself where it is from."""
    return row.model_copy(
        update={
            "seeds": record.seeds if row.seeds is None else row.seeds,
            "revision": row.revision or record.revision,
            "date": row.date or record.date,
            "machine": row.machine or record.machine,
            "note": row.note or record.note or None,
        }
    )


def _beyond(row: Row, record: Record) -> Row:
    """A row without what its record says already."""
    same = [key for key in ("revision", "date", "machine", "note") if getattr(row, key) == getattr(record, key)]
    return row.model_copy(update=dict.fromkeys(same))


def _words(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items()) or "nothing"
