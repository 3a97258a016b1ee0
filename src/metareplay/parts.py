"""Parts: what a method is made of. A part brings its settings, and says what it is and what it cannot be combined with.

A task map, posterior family, prior-matching estimator, strategy, criterion or network is registered in one line next to
its code, in the registry of its kind. Any other package can do the same with the ``register_*`` functions: in a module
that it lists under the entry point group ``metareplay.parts``, or before it uses the library.
"""

import difflib
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from threading import RLock
from typing import Any, Generic, TypeVar

from metareplay.errors import ConfigError
from metareplay.settings import AnySettings, Part, Settings, key_of

ENTRY_POINTS = "metareplay.parts"
"""The entry point group under which a package lists modules that register parts."""


AnyPart = TypeVar("AnyPart", bound=Part)


class Registry(Generic[AnyPart], Mapping[str, AnyPart]):
    """The parts of one kind by name, in order of registration.

    ``verb`` joins a method and its part in a sentence: pr-bbb *has* Gaussian posteriors.
    """

    def __init__(self, kind: str, verb: str = "has") -> None:
        self.kind, self.verb = kind, verb
        self._parts: dict[str, AnyPart] = {}

    def register(self, part: AnyPart, *, replace: bool = False) -> AnyPart:
        """Add a part; names are unique. With ``replace`` it takes the place of a part with the same name."""
        if part.name in self._parts and not replace:
            raise ConfigError(
                f"there is already a {self.kind} named {part.name!r}; choose another name, or pass replace=True "
                "to replace it"
            )
        self._parts[part.name] = part
        return part

    def remove(self, name: str) -> None:
        """Remove a registered part."""
        del self._parts[name]

    def __getitem__(self, name: str) -> AnyPart:
        if name not in self._parts:
            load_plugins()
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(dict(self._parts))

    def __len__(self) -> int:
        load_plugins()
        return len(self._parts)

    def named(self, name: str) -> AnyPart:
        """The part with this name; for an unknown name the error suggests the closest."""
        if name not in self._parts:
            load_plugins()
        if name in self._parts:
            return self._parts[name]
        close = difflib.get_close_matches(name, self._parts, n=1)
        hint = f"; did you mean {close[0]}?" if close else "."
        raise ConfigError(f"{self.kind}={name!r} is unknown{hint} Choose one of {', '.join(self._parts)}")


@cache
def _clash(classes: tuple[type[Settings], ...]) -> tuple[str, type[Settings], type[Settings]] | None:
    """A setting that two classes define differently, and the classes; a class may redefine what it inherits."""
    defined: dict[str, list[type[Settings]]] = {}
    for settings in classes:
        for name in settings.model_fields:
            others = defined.setdefault(key_of(settings, name), [])
            for other in others:
                related = issubclass(settings, other) or issubclass(other, settings)
                if not related and _definition(settings, name) != _definition(other, name):
                    return key_of(settings, name), other, settings
            others.append(settings)
    return None


def _definition(settings: type[Settings], name: str) -> tuple[Any, ...]:
    """What makes two settings the same: type, default and bounds."""
    field = settings.model_fields[name]
    return field.annotation, field.default, field.default_factory, field.metadata


def check_settings(method: str, settings: Mapping[str, tuple[type[Settings], ...]]) -> None:
    """Refuse a method if two of its parts define a setting differently; ``settings`` has those of each part."""
    clash = _clash(tuple(dict.fromkeys(group for groups in settings.values() for group in groups)))
    if clash is None:
        return
    key, *classes = clash
    first, second = (next(part for part, groups in settings.items() if group in groups) for group in classes)
    raise ConfigError(
        f"method {method!r} cannot be composed: {first} and {second} both have the setting {key}, with different "
        "types, bounds or defaults; rename one of them, or let both inherit it from one class"
    )


_PLUGINS: list[str] = []
_LOADING = RLock()
_begun = False


def load_plugins() -> tuple[str, ...]:
    """Import, once, the modules that installed packages list as entry points; the names of those entry points."""
    global _begun
    with _LOADING:
        if not _begun:
            _begun = True  # modules imported here may use the registries
            for entry in entry_points(group=ENTRY_POINTS):
                try:
                    entry.load()
                except Exception as error:  # whatever another package does
                    message = f"the parts of {entry.value} cannot be used: {type(error).__name__}: {error}"
                    warnings.warn(message, stacklevel=2)
                    continue
                _PLUGINS.append(entry.name)
    return tuple(_PLUGINS)


class Alone:
    """The composition of a part by itself, outside any method: the settings given here, and defaults for the rest."""

    method_name = "a part by itself"

    def __init__(self, *settings: Settings) -> None:
        self.given = settings

    def parts(self) -> Mapping[str, Part]:
        """No other parts."""
        return {}

    def find(self, settings: type[AnySettings]) -> AnySettings | None:
        """The given settings of this type, if any."""
        return next((given for given in self.given if isinstance(given, settings)), None)

    def get(self, settings: type[AnySettings]) -> AnySettings:
        """The given settings of this type, else the defaults."""
        return self.find(settings) or settings()
