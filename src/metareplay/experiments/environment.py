"""What a run was made with and how much memory it took."""

import platform
from typing import Any

import torch

from metareplay.version import __version__


def peak_memory_mib() -> float | None:
    """The most memory that this process had at any moment; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if platform.system() == "Darwin" else 2**10), 1)  # bytes there, KiB elsewhere


def environment(threads: int) -> dict[str, Any]:
    """What a run was made with."""
    return {
        "metareplay": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "platform": platform.platform(terse=True),
        "processor": platform.machine(),
        "threads": threads,
    }
