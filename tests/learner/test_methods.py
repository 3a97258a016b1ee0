"""A method is checked when it is registered: its parts exist, and agree on the settings that they share."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from pydantic import Field

from metareplay.errors import ConfigError
from metareplay.inference.criteria import CRITERIA, Criterion, register_criterion
from metareplay.learner.config import build_config
from metareplay.learner.methods import METHODS, Method, register_family_methods, register_method
from metareplay.parts import Registry
from metareplay.settings import Settings
from metareplay.strategies.base import STRATEGIES, register_strategy


class OtherVariance(Settings):
    group: ClassVar[str] = "posterior"
    prior_variance: float = Field(7.0, gt=0, description="the same key as the family's, with another default")


class OtherSeed(Settings):
    seed: int = Field(7, ge=0, description="the same key as every run's, with another default")


@pytest.fixture(autouse=True)
def unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone afterwards."""
    registries: tuple[Registry[Any], ...] = (METHODS, STRATEGIES, CRITERIA)
    for registry in registries:
        monkeypatch.setattr(registry, "_parts", dict(registry._parts))


def mine(**changes: str) -> Method:
    row = {"task_map": "hypernetwork", "family": "bbb", "strategy": "posterior-replay", **changes}
    return Method(name="mine", description="mine", **row)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"strategy": "posterior-reply"}, "strategy='posterior-reply' is unknown; did you mean posterior-replay"),
        ({"family": "bb"}, "family='bb' is unknown"),
        ({"matching": "direkt"}, "matching='direkt' is unknown"),
        ({"task_map": "hyper"}, "task map='hyper' is unknown"),
        ({"outputs": "many"}, "outputs='many' is unknown"),
    ],
)
def test_a_part_that_does_not_exist(part: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=f"method 'mine' cannot be composed: {words}"):
        register_method(mine(**part))
    assert "mine" not in METHODS


def test_parts_that_disagree_on_a_setting() -> None:
    register_strategy(replace(STRATEGIES["unbound"], name="other", settings=(OtherVariance,)))
    with pytest.raises(ConfigError, match=r"'mine' .*the family 'bbb' and the strategy 'other' both have .*prior_var"):
        register_method(mine(strategy="other"))
    assert "mine" not in METHODS


@pytest.mark.parametrize(("settings", "other"), [(OtherVariance, "the family 'bbb'"), (OtherSeed, "every run")])
def test_a_criterion_that_disagrees_with_a_method(settings: type[Settings], other: str) -> None:
    score = CRITERIA["ent"].score
    register_criterion(Criterion(name="zed", description="none", settings=(settings,), score=score))
    with pytest.raises(ConfigError, match=f"method 'pr-bbb' cannot be composed: {other} and the criterion 'zed' both"):
        build_config({}, {"method": "pr-bbb"}, "here")


def test_a_part_is_changed_and_registered_again() -> None:
    """As in a notebook, where a cell is run a second time."""
    for default in (0.25, 0.75):

        class Again(Settings):
            group: ClassVar[str] = "strategy"
            share: float = Field(default, description="has another default each time")

        register_strategy(replace(STRATEGIES["unbound"], name="again", settings=(Again,)), replace=True)
        register_method(mine(strategy="again"), replace=True)
        assert build_config({}, {"method": "mine"}, "here").get(Again).share == default
    with pytest.raises(ConfigError, match=r"already a method named 'pr-bbb'; .*replace=True"):
        register_family_methods("bbb", "Gaussians", family="bbb")
    register_family_methods("bbb", "Gaussians", family="bbb", replace=True)
    assert METHODS["sp-bbb"].description == "a separate network per task, Gaussians"
