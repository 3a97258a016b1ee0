"""Freed memory stays with the process, so that the next training step finds it again.

The C library gives large pieces of memory back to the system at once, and asks for them anew a moment later; the system then clears them
page by page. Steps that hold many weight samples spend up to a third of their time so.
"""

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # of mallopt, in the GNU C library
_KEPT, _AHEAD, _LARGEST = 2**31 - 1, 2**26, 2**30
CHOSEN_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")
"""Variables of the environment by which a user has chosen how memory is handled; then nothing is changed."""


def keep_freed_memory() -> bool:
    """Let this process keep up to 2 GiB of freed memory, and pieces of up to 1 GiB in one heap; whether that could be set.

    Only the GNU C library is asked, so on Linux alone.
    """
    if sys.platform != "linux" or any(name in os.environ for name in CHOSEN_BY_USER):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEPT) and mallopt(_M_TOP_PAD, _AHEAD) and mallopt(_M_MMAP_THRESHOLD, _LARGEST))
