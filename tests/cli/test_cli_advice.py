"""`metareplay list methods --advice`: which method to take when."""

from collections.abc import Callable
from typing import Any

from metareplay.cli.advice import ADVICE
from metareplay.learner.methods import METHODS


def test_advice_names_methods_that_exist(command: Callable[..., Any]) -> None:
    assert {name for advice in ADVICE for name in advice.methods} <= set(METHODS)
    answer = command("list", "methods", "--advice")
    assert answer.code == 0
    for advice in ADVICE:
        assert ", ".join(advice.methods) in answer.out


def test_advice_in_markdown_has_a_row_per_situation(command: Callable[..., Any]) -> None:
    answer = command("list", "methods", "--advice", "--markdown")
    rows = answer.out.strip().splitlines()
    assert rows[:2] == ["| if | use | because |", "|---|---|---|"]
    assert len(rows) == 2 + len(ADVICE)


def test_there_is_advice_on_methods_only(command: Callable[..., Any]) -> None:
    answer = command("list", "networks", "--advice")
    assert answer.code != 0
    assert "write: metareplay list methods --advice" in answer.err
