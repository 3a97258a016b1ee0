"""Random numbers that a module draws from PyTorch's global generator, e.g. for dropout, from an explicit generator."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from weakref import WeakKeyDictionary

import torch
from torch import Generator, nn

_SWAP = threading.RLock()
"""Held while the global generator is replaced by another."""
_INSIDE = threading.local()
_DRAWS: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
"""Whether a module also draws random numbers in evaluation mode, once known."""
_DRAWS_LOCK = threading.Lock()


@contextmanager
def drawing_from(generator: Generator) -> Iterator[None]:
    """What a module draws from PyTorch's global generator comes from this one."""
    with _SWAP:
        outside = torch.get_rng_state()
        torch.set_rng_state(generator.get_state())
        _INSIDE.depth = getattr(_INSIDE, "depth", 0) + 1
        try:
            yield
        finally:
            _INSIDE.depth -= 1
            generator.set_state(torch.get_rng_state())
            torch.set_rng_state(outside)


def exchanged() -> bool:
    """Whether this thread has replaced the global generator, and so may reset its state."""
    return getattr(_INSIDE, "depth", 0) > 0


def draws_in_evaluation(module: nn.Module) -> bool | None:
    """Whether a module also draws random numbers in evaluation mode; None until it has been tried."""
    with _DRAWS_LOCK:
        return _DRAWS.get(module)


def drawing_in_evaluation(module: nn.Module, generator: Generator) -> AbstractContextManager[None]:
    """Like ``drawing_from``, around forward passes of a module in evaluation mode.

    Few modules draw anything then. The first pass shows whether one does; if not, the global generator is left alone
    from then on, so that threads need not wait for each other.
    """
    return nullcontext() if draws_in_evaluation(module) is False else _watched(module, generator)


@contextmanager
def _watched(module: nn.Module, generator: Generator) -> Iterator[None]:
    before = generator.get_state()
    with drawing_from(generator):
        yield
    with _DRAWS_LOCK:
        _DRAWS.setdefault(module, not torch.equal(before, generator.get_state()))
