"""Parts: what a method is made of. A part brings its settings, and says itself what it is and what it cannot be combined with.

A task map, posterior family, prior-matching estimator, strategy, criterion or network registers in one line beside its code, in the
registry of its kind. A package of somebody else's does the same with the ``register_*`` functions, in a module that it names under the
entry point group ``metareplay.parts``, or before it uses the library.
"""

import difflib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Generic, Protocol, TypeVar

from metareplay.errors import ConfigError
from metareplay.settings import Settings

ENTRY_POINTS = "metareplay.parts"
"""The entry point group under which a package names modules that register parts."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One of the things that a method names; each kind of part adds how it is built."""

    name: str
    phrase: str
    """What a method with this part has, in the plural or with an article: ``Gaussian posteriors``, ``a hypernetwork``."""
    settings: tuple[type[Settings], ...] = ()
    """The part's own settings; most have one class, or none."""


AnyPart = TypeVar("AnyPart", bound=Part)
AnySettings = TypeVar("AnySettings", bound=Settings)


class Composition(Protocol):
    """What a part may ask of the method it is part of."""

    @property
    def method_name(self) -> str:
        """The method's name."""
        ...

    def part(self, kind: str) -> Part:
        """The method's part of a kind: ``task map``, ``family``, ``matching``, ``strategy`` or ``network``."""
        ...

    def find(self, settings: type[AnySettings]) -> AnySettings | None:
        """The values of a part's settings; None if no part of the method has them."""
        ...


class Registry(Generic[AnyPart], Mapping[str, AnyPart]):
    """The parts of one kind by name, in the order in which they were registered."""

    def __init__(self, kind: str, verb: str = "has") -> None:
        self.kind, self.verb = kind, verb
        """``verb`` joins a method and its part in a sentence: pr-bbb *has* Gaussian posteriors."""
        self._parts: dict[str, AnyPart] = {}

    def register(self, part: AnyPart) -> AnyPart:
        """Add a part; a name is given once."""
        if part.name in self._parts:
            raise ConfigError(f"there is a {self.kind} named {part.name!r} already; choose another name for yours")
        self._parts[part.name] = part
        return part

    def remove(self, name: str) -> None:
        """Forget a part that somebody registered."""
        del self._parts[name]

    def __getitem__(self, name: str) -> AnyPart:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def named(self, name: str) -> AnyPart:
        """The part with that name; an unknown one is refused with the closest that exists."""
        load_plugins()
        if name in self._parts:
            return self._parts[name]
        close = difflib.get_close_matches(name, self._parts, n=1)
        hint = f"; did you mean {close[0]}?" if close else "."
        raise ConfigError(f"{self.kind}={name!r} is unknown{hint} Choose one of {', '.join(self._parts)}")


@cache
def load_plugins() -> tuple[str, ...]:
    """Import, once, the modules that installed packages name under the entry point group; returns the names of the entry points."""
    loaded = []
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except Exception as error:  # whatever another package does
            warnings.warn(f"the parts of {entry.value} cannot be used: {type(error).__name__}: {error}", stacklevel=2)
            continue
        loaded.append(entry.name)
    return tuple(loaded)
