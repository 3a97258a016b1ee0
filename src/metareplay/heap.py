"""Freed memory stays with the process, so that the next training step can reuse it.

The C library returns large blocks of memory to the system at once, and requests them again a moment later; the system
then clears them page by page. Steps that hold many weight samples can spend up to half their time on this.
"""

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # of mallopt, in the GNU C library
_KEPT, _AHEAD = 2**31 - 1, 2**26
_LARGEST = (2**28, 2**25)  # older versions refuse more than 32 MiB
CHOSEN_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")
"""Environment variables by which a user configures memory allocation; if one is set, nothing is changed."""


def keep_freed_memory() -> bool:
    """Let this process keep freed memory, except blocks above 256 MiB and all beyond 2 GiB at the end of the heap.

    Returns whether that could be set, which only the GNU C library on Linux can.
    """
    if sys.platform != "linux" or any(name in os.environ for name in CHOSEN_BY_USER):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    if not any(mallopt(_M_MMAP_THRESHOLD, size) for size in _LARGEST):  # first: else the others fix it at 128 KiB
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEPT) and mallopt(_M_TOP_PAD, _AHEAD))


def give_back_freed_memory() -> bool:
    """Return freed memory to the system when another kind of work begins; whether any was returned.

    That work requests blocks of other sizes, and could not reuse those that are left.
    """
    if sys.platform != "linux" or any(name in os.environ for name in CHOSEN_BY_USER):
        return False
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(ctypes.c_size_t(0)))
