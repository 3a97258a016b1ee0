"""One module for several threads. ``functional_call`` swaps weights into a running module: one thread at a time.

A thread borrows the module or, if another thread has it, a copy that shares all its tensors.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from weakref import WeakKeyDictionary

from torch import nn


class _Shelf:
    """The copies of a module that can be lent. It holds no reference to the module, which can be garbage-collected."""

    def __init__(self, module: nn.Module) -> None:
        self.lent = False
        self.returned = threading.Condition()
        self.spares: list[nn.Module] = []
        try:
            self.pattern: nn.Module | None = copy_sharing(module)  # now, before other weights are swapped in
        except Exception:  # a user's module may hold anything
            self.pattern = None


_SHELVES: WeakKeyDictionary[nn.Module, _Shelf] = WeakKeyDictionary()
_SHELVES_LOCK = threading.Lock()


@contextmanager
def borrowed(module: nn.Module) -> Iterator[nn.Module]:
    """The module, or a copy, for this thread alone; a module that cannot be copied is waited for."""
    with _SHELVES_LOCK:
        shelf = _SHELVES.get(module) or _SHELVES.setdefault(module, _Shelf(module))
    with shelf.returned:
        while shelf.lent and shelf.pattern is None:
            shelf.returned.wait()
        original, shelf.lent = not shelf.lent, True
        lent = module if original else shelf.spares.pop() if shelf.spares else copy_sharing(shelf.pattern)  # type: ignore[arg-type]
    try:
        yield lent
    finally:
        with shelf.returned:
            if original:
                shelf.lent = False
                shelf.returned.notify()
            else:
                shelf.spares.append(lent)


def copy_sharing(module: nn.Module) -> nn.Module:
    """A copy of the structure that shares the tensors."""
    shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return deepcopy(module, shared)
