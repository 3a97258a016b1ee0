"""One module for several threads. ``functional_call`` puts weights into a module while it runs, so only one thread may use it at a time.

A thread borrows the module, or, if that is lent already, a copy that shares all its tensors.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from weakref import WeakKeyDictionary

from torch import nn


class _Shelf:
    """What there is to lend of a module. The module itself is not held, so that it can be collected."""

    def __init__(self, module: nn.Module) -> None:
        self.lent = False
        self.returned = threading.Condition()
        self.spares: list[nn.Module] = []
        try:
            self.pattern: nn.Module | None = _copy(module)  # now, while nobody's weights are in it
        except Exception:  # a user's module may hold anything
            self.pattern = None


_SHELVES: WeakKeyDictionary[nn.Module, _Shelf] = WeakKeyDictionary()
_SHELVES_LOCK = threading.Lock()


@contextmanager
def borrowed(module: nn.Module) -> Iterator[nn.Module]:
    """The module, or a copy of it that no other thread uses meanwhile; one that cannot be copied is waited for."""
    with _SHELVES_LOCK:
        shelf = _SHELVES.get(module) or _SHELVES.setdefault(module, _Shelf(module))
    with shelf.returned:
        while shelf.lent and shelf.pattern is None:
            shelf.returned.wait()
        original, shelf.lent = not shelf.lent, True
        own = module if original else shelf.spares.pop() if shelf.spares else _copy(shelf.pattern)  # type: ignore[arg-type]
    try:
        yield own
    finally:
        with shelf.returned:
            if original:
                shelf.lent = False
                shelf.returned.notify()
            else:
                shelf.spares.append(own)


def _copy(module: nn.Module) -> nn.Module:
    """The same structure around the same tensors."""
    shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return deepcopy(module, shared)
