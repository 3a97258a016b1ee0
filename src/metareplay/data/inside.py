"""A folder of data from elsewhere is read, and nothing outside it: no links and no paths that point outside."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from metareplay.errors import DataError
from metareplay.files import real_path
from metareplay.texts import read_json_file

VARIABLE = "METAREPLAY_FOLLOW_LINKS"
ADVICE = f"copy the file into the folder, or allow it with the environment variable {VARIABLE}=1"


def refuse_outside(root: Path, files: Iterable[Path]) -> None:
    """Refuse links that point outside a folder; the folder itself may be a link, since the user named it."""
    real = None
    for file in files:
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise DataError(f"{file} is a FIFO or a device, not a file; remove it")
        if file.is_symlink() and not file.exists():
            raise DataError(f"{file} is a broken link; remove it, or restore the file that it points to")
        if _allowed() or not any(part.is_symlink() for part in (file, *_between(root, file))):
            continue
        real = real or _whole(real_path(root))
        if not real_path(file).is_relative_to(real):
            raise DataError(f"{file} is a link that points outside {root} and is not followed by default; {ADVICE}")


def _whole(root: Path) -> Path:
    """The folder itself; of a snapshot in the hub's cache, the repository, whose files the snapshot links to."""
    repository = root.parent.parent
    return repository if root.parent.name == "snapshots" and (repository / "blobs").is_dir() else root


def _between(root: Path, file: Path) -> list[Path]:
    """The folders from the root to a file."""
    return [folder for folder in file.parents if folder != root and folder.is_relative_to(root)]


def path_inside(root: Path | None, name: str, where: str) -> Path:
    """The file that a table names, relative to the table's folder and inside it."""
    path = Path(name) if root is None else root / name
    if root is not None and not _allowed() and not real_path(path).is_relative_to(real_path(root)):
        raise DataError(f"{where} names the file {name}, which is outside {root} and is not read; {ADVICE}")
    return path


def refuse_paths_of_saved(folder: Path) -> None:
    """Refuse a data set of the Hugging Face library, saved to disk, whose parts or files are elsewhere."""
    splits = _json(folder / "dataset_dict.json").get("splits", [])
    for part in [folder, *(folder / str(name) for name in (splits if isinstance(splits, list) else []))]:
        if part.parent not in (folder, folder.parent) or part.name in ("", ".", ".."):
            raise DataError(f"{folder / 'dataset_dict.json'} names a part outside its folder; {ADVICE}")
        files = _json(part / "state.json").get("_data_files", [])
        for entry in files if isinstance(files, list) else []:
            name = str(entry.get("filename", "") if isinstance(entry, dict) else entry)
            if os.path.basename(name) != name or name in ("", ".", ".."):
                raise DataError(f"{part / 'state.json'} names the file {name!r}, which is not in its folder; {ADVICE}")


def refuse_named(path: str | None, where: str) -> None:
    """Refuse to read data only because a folder that was opened names them."""
    if path is not None and not _allowed():
        raise DataError(
            f"this needs the data {path}, which {where} names and which are not read by default; "
            f"allow it with the environment variable {VARIABLE}=1"
        )


def _json(path: Path) -> dict[str, Any]:
    """The content of a file; empty if it cannot be read, which the library will say better."""
    try:
        content = read_json_file(path)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _allowed() -> bool:
    return os.environ.get(VARIABLE, "").lower() in {"1", "on", "yes", "true"}
