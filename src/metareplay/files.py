"""Files that are written completely or not at all."""

import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from metareplay.errors import MetaReplayError

Content = bytes | str | Iterable[bytes | memoryview]


def write_atomically(path: Path, content: Content) -> Path:
    """Write a file in one step, even if interrupted: readers see the old content or the new, never a part of it."""
    write_together({path: content})
    return path


def write_together(contents: Mapping[Path, Content]) -> None:
    """Write files of one folder, each in one step; all are on the disk before the first takes its place."""
    temporaries: dict[Path, str] = {}
    path = next(iter(contents))
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporaries[path] = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
            _fill(handle, content)
            os.chmod(temporaries[path], 0o666 & ~_umask())
        for path in contents:
            os.replace(temporaries[path], path)
            del temporaries[path]
        for folder in {path.parent for path in contents}:
            sync_folder(folder)
    except OSError as error:
        raise MetaReplayError(
            f"cannot write {path}: {error.strerror or error}; what was stored before is untouched"
        ) from error
    finally:
        for temporary in temporaries.values():
            with suppress(OSError):
                os.unlink(temporary)


def write_answers(path: Path, content: Content) -> None:
    """Write to the file that a user named: into a device or a FIFO, through a link, and else in one step."""
    target = path.resolve() if path.is_symlink() else path
    around = {str(folder) for place in (path.absolute(), target) for folder in place.parents}
    if (target.is_file() or not target.exists()) and not around & {"/dev", "/proc"}:
        write_atomically(target, content)
        return
    try:
        with path.open("wb") as file:
            file.writelines(_parts(content))
    except OSError as error:
        raise MetaReplayError(f"cannot write {path}: {error.strerror or error}") from error


def refuse_special(path: Path) -> None:
    """Refuse to replace a link, a device or a FIFO by a new file."""
    if os.path.lexists(path) and (path.is_symlink() or not (path.is_file() or path.is_dir())):
        raise MetaReplayError(f"{path} is a link, a device or a FIFO, and is not replaced; name a file")


def _parts(content: Content) -> Iterable[bytes | memoryview]:
    if isinstance(content, str | bytes):
        return (content.encode() if isinstance(content, str) else content,)
    return content


def _fill(handle: int, content: Content) -> None:
    """Write to a new file, and wait until it is on the disk."""
    with os.fdopen(handle, "wb") as file:
        file.writelines(_parts(content))
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until renames in a folder are on the disk; some file systems cannot."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_left_overs(folder: Path, names: Iterable[str] = ("*",)) -> int:
    """Remove temporary files of writers that were killed; returns their bytes. Only for the folder's one writer."""
    freed = 0
    for name in names:
        for path in folder.glob(f".{name}.*.tmp"):
            with suppress(OSError):
                size = path.lstat().st_size
                path.unlink()
                freed += size
    return freed


def _umask() -> int:
    """The process's file-creation mask, which temporary files ignore."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
