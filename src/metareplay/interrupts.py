"""Ctrl-C and SIGTERM: the first one ends work within seconds, with its state saved; a second one ends it at once.

While steps are taken, a signal is only noted: the loop asks after each step, saves and stops. All else that takes long,
such as statistics, tests and features, is ``leavable``: it changes nothing that is stored, so that it is left where it
is and computed again when the work is continued.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from metareplay.errors import MetaReplayError


class Interrupted(MetaReplayError):  # noqa: N818
    """The user asked to stop; what is stored is enough to continue."""


class _Left(KeyboardInterrupt):
    """A signal came while work could be left."""


class _Signals:
    """What has come so far. A process has one, since signals are for a process, and its main thread handles them."""

    def __init__(self) -> None:
        self.come: set[int] = set()
        self.leavable = 0
        """How many phases that can be left the main thread is in, one within the other."""

    def note(self, number: int, _: object) -> None:
        """The handler. A scheduler or a parent may send SIGTERM after a Ctrl-C: that is not a second Ctrl-C."""
        if number in self.come:
            raise KeyboardInterrupt
        self.come.add(number)
        if self.leavable:
            raise _Left


_signals = _Signals()


def stop_on_signal() -> Callable[[], bool]:
    """From now on a first Ctrl-C or SIGTERM asks to stop, which the function returned tells."""
    signals = _signals
    signals.come.clear()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signals.note)
    return lambda: bool(signals.come)


@contextmanager
def leavable(words: str) -> Iterator[None]:
    """Work that ends at once, with these words, when a signal has asked for it; elsewhere than on the main thread, or
    without ``stop_on_signal``, nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        _signals.leavable += 1
        try:
            if _signals.come:
                raise _Left
            yield
        finally:
            _signals.leavable -= 1
        if _signals.come and not _signals.leavable:  # where it came, nothing could be raised
            raise _Left
    except _Left:
        raise Interrupted(words) from None
