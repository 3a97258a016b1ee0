"""Settings: typed, frozen, unknown keys refused; and what a part with settings may ask about the other parts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, field_validator

LARGEST_INTEGER = 2**63 - 1
"""Beyond it, numbers of tensors overflow."""
LARGEST_NUMBER = 1e100
"""Beyond it, products of settings with anything else may be infinite."""


def _positive(widths: tuple[int, ...]) -> tuple[int, ...]:
    if any(width < 1 for width in widths):
        raise ValueError("every width must be at least 1")
    return widths


Widths = Annotated[tuple[int, ...], AfterValidator(_positive)]
"""Widths of hidden layers."""


class Settings(BaseModel):
    """A part's settings; ``Field(description=...)`` explains each one where it is defined.

    A method's configuration is composed of the settings of its parts. Two parts may have a setting of the same name and
    meaning; it is then one setting of the method.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _countable(cls, value: Any) -> Any:
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            raise ValueError(f"integers must be at most {LARGEST_INTEGER} in absolute value")
        if isinstance(value, float) and abs(value) > LARGEST_NUMBER:
            raise ValueError(f"numbers must be at most {LARGEST_NUMBER:g} in absolute value")
        return value

    group: ClassVar[str] = ""
    """The part of their keys before the dot: ``posterior`` for ``posterior.train_samples``; empty for no dot."""

    def without_effect(self, composition: "Composition") -> Mapping[str, str]:
        """Settings (of any part) that have no effect in this composition, by key, with the reason."""
        return {}

    def check(self, composition: "Composition") -> None:
        """Refuse, with a ConfigError, what cannot be combined."""


AnySettings = TypeVar("AnySettings", bound=Settings)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One of the parts that a method names; each kind of part adds how it is built."""

    name: str
    phrase: str
    """What a method with this part has, plural or with an article: ``Gaussian posteriors``, ``a hypernetwork``."""
    settings: tuple[type[Settings], ...] = ()
    """The part's settings; most parts have one class of them, or none."""


class Composition(Protocol):
    """What a part may ask about the method that it belongs to."""

    @property
    def method_name(self) -> str:
        """The method's name."""
        ...

    def parts(self) -> Mapping[str, Part]:
        """Its parts by kind: ``task map``, ``family``, ``members``, ``matching``, ``strategy``, ``network``."""
        ...

    def find(self, settings: type[AnySettings]) -> AnySettings | None:
        """The values of a part's settings; None if no part of the method has them."""
        ...

    def get(self, settings: type[AnySettings]) -> AnySettings:
        """The values of settings that a part of the method is known to have."""
        ...


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"training": {"epochs": 3}} -> {"training.epochs": 3}."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of ``flatten``."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        group, _, name = key.rpartition(".")
        (nested.setdefault(group, {}) if group else nested)[name] = value
    return nested


def key_of(settings: type[Settings], name: str) -> str:
    """The dotted key of a setting."""
    return f"{settings.group}.{name}" if settings.group else name
