"""Base of all settings: typed, frozen, unknown keys refused. Each part of the library defines its own."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """A group of settings; ``Field(description=...)`` explains each one where it is defined."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    group: ClassVar[str] = ""
    """What stands before the dot of their keys: ``posterior`` for ``posterior.train_samples``; empty for keys without a dot."""


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
