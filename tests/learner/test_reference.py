"""The reference of settings says what the parts allow."""

from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from metareplay.learner.config import config_class, setting_descriptions
from metareplay.learner.methods import METHODS
from metareplay.learner.reference import allowed, setting_groups, shown
from metareplay.settings import Settings, flatten


class Example(Settings):
    group: ClassVar[str] = "example"
    count: int = Field(1, ge=1)
    share: float = Field(0.5, gt=0, le=1)
    limit: float | None = Field(None, ge=0)
    kind: Literal["a", "b"] = "a"
    widths: tuple[int, ...] = (2, 3)
    pair: tuple[int, float] = (1, 2.5)
    flag: bool = False
    size: int = Field(3, ge=2, le=4)


@pytest.mark.parametrize(
    ("name", "words", "default"),
    [
        ("count", "positive integer", "1"),
        ("share", "number in (0, 1]", "0.5"),
        ("limit", "number ≥ 0 or null", "null"),
        ("kind", "`a`, `b`", "a"),
        ("widths", "list (integer each)", "[2, 3]"),
        ("pair", "[integer, number]", "[1, 2.5]"),
        ("flag", "true or false", "false"),
        ("size", "integer in [2, 4]", "3"),
    ],
)
def test_what_a_setting_allows(name: str, words: str, default: str) -> None:
    form: dict[str, Any] = Example.model_json_schema()["properties"][name]
    assert (allowed(form, {}), shown(form["default"])) == (words, default)


def test_groups_name_every_setting_of_exactly_the_methods_that_have_it() -> None:
    groups = setting_groups()
    assert {fact.key for group in groups for fact in group.settings} == set(setting_descriptions())
    for method in METHODS:
        listed = {fact.key for group in groups if method in group.methods() for fact in group.settings}
        assert listed == set(flatten(config_class(method, "mlp-10")().model_dump())), method
