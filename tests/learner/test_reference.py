"""The reference of settings says what the parts allow."""

from metareplay.learner.config import config_class, setting_descriptions
from metareplay.learner.methods import METHODS
from metareplay.learner.reference import setting_groups
from metareplay.settings import flatten


def test_groups_name_every_setting_of_exactly_the_methods_that_have_it() -> None:
    groups = setting_groups()
    assert {fact.key for group in groups for fact in group.settings} == set(setting_descriptions())
    for method in METHODS:
        listed = {fact.key for group in groups if method in group.methods() for fact in group.settings}
        found = [config_class(method, f"{kind}:efficientnet-lite0+mlp-10")() for kind in ("adapters", "features")]
        assert listed == {key for config in found for key in flatten(config.model_dump())}, method
