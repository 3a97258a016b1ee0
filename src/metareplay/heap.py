"""Freed memory stays with the process, so that the next training step finds it again.

The C library gives large pieces of memory back to the system at once, and asks for them anew a moment later; the system then clears them
page by page. Steps that hold many weight samples spend up to half of their time so.
"""

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # of mallopt, in the GNU C library
_KEPT, _AHEAD = 2**31 - 1, 2**26
_LARGEST = (2**28, 2**25)  # older versions refuse more than 32 MiB
CHOSEN_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")
"""Variables of the environment by which a user has chosen how memory is handled; then nothing is changed."""


def keep_freed_memory() -> bool:
    """Let this process keep freed memory, but for pieces above 256 MiB and all beyond 2 GiB at the heap's end; whether that could be set.

    Only the GNU C library is asked, so on Linux alone.
    """
    if sys.platform != "linux" or any(name in os.environ for name in CHOSEN_BY_USER):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    if not any(
        mallopt(_M_MMAP_THRESHOLD, size) for size in _LARGEST
    ):  # first: the others alone would fix it at 128 KiB
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEPT) and mallopt(_M_TOP_PAD, _AHEAD))


def give_back_freed_memory() -> bool:
    """Give the system what this process has freed and kept, where another kind of work begins; whether something was given back.

    What follows asks for pieces of other sizes, and would not find them among those that are left.
    """
    if sys.platform != "linux" or any(name in os.environ for name in CHOSEN_BY_USER):
        return False
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(ctypes.c_size_t(0)))
