"""Registries of parts: unique names, replaced only on request; settings that two parts share must be the same."""

from typing import ClassVar

import pytest
from pydantic import Field

from metareplay.errors import ConfigError
from metareplay.parts import Registry, check_settings
from metareplay.settings import Part, Settings


class Plain(Settings):
    group: ClassVar[str] = "strategy"
    strength: float = Field(1.0, ge=0, description="weight of the penalty")


class Refined(Plain):
    strength: float = Field(2.0, ge=0, description="another default, and it says so by deriving from the first")


class Derived(Plain):
    damping: float = 0.1


class SameAgain(Settings):
    group: ClassVar[str] = "strategy"
    strength: float = Field(1.0, ge=0, description="in other words")


class OtherDefault(Settings):
    group: ClassVar[str] = "strategy"
    strength: float = Field(2.0, ge=0)


class OtherType(Settings):
    group: ClassVar[str] = "strategy"
    strength: int = Field(1, ge=0)


class OtherBound(Settings):
    group: ClassVar[str] = "strategy"
    strength: float = Field(1.0, gt=0)


class OtherGroup(Settings):
    group: ClassVar[str] = "posterior"
    strength: int = 1


def test_a_name_is_taken_once_unless_it_is_replaced() -> None:
    registry: Registry[Part] = Registry("family")
    registry.register(Part(name="first", phrase="one"))
    registry.register(Part(name="second", phrase="two"))
    with pytest.raises(ConfigError, match=r"already a family named 'first'; .* or pass replace=True to replace it"):
        registry.register(Part(name="first", phrase="three"))
    assert registry["first"].phrase == "one"
    registry.register(Part(name="first", phrase="three"), replace=True)
    assert [part.phrase for part in registry.values()] == ["three", "two"]  # in the place of the old one


@pytest.mark.parametrize("other", [SameAgain, Refined, Derived, OtherGroup])
def test_parts_may_share_a_setting(other: type[Settings]) -> None:
    check_settings("mine", {"the family 'a'": (Plain,), "the strategy 'b'": (other,)})
    check_settings("mine", {"the family 'a'": (other,), "the strategy 'b'": (Plain,)})


@pytest.mark.parametrize(
    ("first", "second"), [(Plain, OtherDefault), (Plain, OtherType), (OtherBound, Plain), (Refined, Derived)]
)
def test_but_not_with_different_types_bounds_or_defaults(first: type[Settings], second: type[Settings]) -> None:
    words = r"method 'mine' cannot be composed: the family 'a' and the strategy 'b' both have the setting strategy\.str"
    with pytest.raises(ConfigError, match=words):
        check_settings("mine", {"the family 'a'": (OtherGroup, first), "the strategy 'b'": (second,)})
