"""The revision of the package, where it runs from a clone."""

import subprocess
from functools import cache
from pathlib import Path

CLONE = Path(__file__).parents[3]


@cache
def revision(clone: Path = CLONE) -> str | None:
    """The commit that a clone is at, with ``-dirty`` if files differ from it; None where there is no clone."""
    if not (clone / ".git").exists():
        return None
    command = ["git", "-C", str(clone), "describe", "--always", "--abbrev=8", "--exclude=*", "--dirty"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip() or None
