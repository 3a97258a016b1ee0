"""The first signal ends what can be left and is only noted elsewhere; a second one of its kind ends everything."""

import signal
import threading
from collections.abc import Iterator

import pytest

from metareplay import interrupts
from metareplay.interrupts import Interrupted, leavable, stop_on_signal

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def own_signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    monkeypatch.setattr(interrupts, "_signals", interrupts._Signals())
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def raised_here(number: signal.Signals) -> None:
    signal.raise_signal(number)
    pytest.fail("it goes on")


def ignored_here(thing: object) -> None:
    """The last reference to it ends here."""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_what_can_be_left_and_nothing_else(number: signal.Signals) -> None:
    asked = stop_on_signal()
    assert not asked()
    with pytest.raises(Interrupted, match="words"), leavable("other words"), leavable("words"):
        raised_here(number)
    assert asked()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)  # a second one
    asked = stop_on_signal()
    assert not asked()
    signal.raise_signal(number)
    assert asked()
    with pytest.raises(Interrupted), leavable("words"):  # before it begins
        pytest.fail("it begins")


def test_sigterm_after_ctrl_c_is_not_a_second_ctrl_c() -> None:
    asked = stop_on_signal()
    signal.raise_signal(signal.SIGINT)  # a terminal sends it to a run and to its processes,
    signal.raise_signal(signal.SIGTERM)  # and the run this one to its processes
    assert asked()


def test_a_signal_that_came_where_nothing_can_be_raised_still_ends_the_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", ignored.append)
    stop_on_signal()

    class Thing:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted), leavable("words"):
        ignored_here(Thing())
    assert len(ignored) == 1


def test_other_threads_and_processes_without_handlers_are_left_alone() -> None:
    stop_on_signal()
    signal.raise_signal(signal.SIGINT)
    done = []

    def work() -> None:
        with leavable("words"):
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
