"""What a setting allows, in words: in the reference, and where a value is refused."""

from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import Field

from metareplay.learner.allowed import allowed, required, shown
from metareplay.settings import Settings


class Example(Settings):
    group: ClassVar[str] = "example"
    count: int = Field(1, ge=1)
    share: float = Field(0.5, gt=0, le=1)
    part: float | None = Field(0.5, ge=0, lt=1)
    limit: float | None = Field(None, ge=0)
    kind: Literal["a", "b"] = "a"
    other: Literal["a", "b"] | None = None
    widths: tuple[int, ...] = (2, 3)
    factors: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    pair: tuple[int, float] = (1, 2.5)
    steps: tuple[tuple[int, float], ...] = ()
    flag: bool = False
    size: int = Field(3, ge=2, le=4)
    members: int = Field(3, ge=2)
    above: float = Field(3.0, gt=2)
    plain: float = 0.5
    text: str = "a"


@pytest.mark.parametrize(
    ("name", "cell", "default", "must_be"),
    [
        ("count", "positive integer", "1", "a positive integer"),
        ("share", "number in (0, 1]", "0.5", "a number above 0 and at most 1"),
        ("part", "number in [0, 1) or null", "0.5", "a number of at least 0 and below 1 or null"),
        ("limit", "number ≥ 0 or null", "null", "a non-negative number or null"),
        ("kind", "`a`, `b`", "a", "a or b"),
        ("other", "`a`, `b` or null", "null", "a, b or null"),
        ("widths", "list (integer each)", "[2, 3]", "a list of integers"),
        ("factors", "list (positive number each) or null", "null", "a list of positive numbers or null"),
        ("pair", "[integer, number]", "[1, 2.5]", "[an integer, a number]"),
        ("steps", "list ([integer, number] each)", "[]", "a list of pairs [an integer, a number]"),
        ("flag", "true or false", "false", "true or false"),
        ("size", "integer in [2, 4]", "3", "an integer from 2 to 4"),
        ("members", "integer ≥ 2", "3", "an integer of at least 2"),
        ("above", "number > 2", "3", "a number above 2"),
        ("plain", "number", "0.5", "a number"),
        ("text", "text", "a", "text"),
    ],
)
def test_what_a_setting_allows(name: str, cell: str, default: str, must_be: str) -> None:
    form: dict[str, Any] = Example.model_json_schema()["properties"][name]
    assert (allowed(form, {}), shown(form["default"]), required(form, {})) == (cell, default, must_be)
