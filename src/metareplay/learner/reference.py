"""The reference of settings, generated from the parts: which parts have a setting, its allowed values and default."""

from collections.abc import Iterator
from typing import NamedTuple

from metareplay.learner.allowed import allowed, shown
from metareplay.learner.compose import ALWAYS, KINDS, Owner
from metareplay.learner.config import RunConfig
from metareplay.learner.methods import METHODS
from metareplay.settings import Settings, key_of


class SettingFacts(NamedTuple):
    """The description of a setting."""

    key: str
    allowed: str
    default: str
    description: str


class SettingGroup(NamedTuple):
    """Settings that the same parts have."""

    owners: tuple[Owner, ...]
    """Empty for the settings of every run."""
    settings: tuple[SettingFacts, ...]

    def methods(self) -> list[str]:
        """The methods that have these settings; those of networks and criteria go with every method."""
        parts = {(owner.registry.kind, owner.part.name) for owner in self.owners}
        if not parts or any(kind in ("network", "criterion") for kind, _ in parts):
            return list(METHODS)
        pairs_of = {
            name: {(kind, part.name) for kind, part in method.parts().items()} for name, method in METHODS.items()
        }
        return [name for name, pairs in pairs_of.items() if pairs & parts]


def setting_groups() -> list[SettingGroup]:
    """All settings, grouped by the parts that have them; those of every run come first."""
    general: tuple[type[Settings], ...] = (RunConfig, *ALWAYS)
    always = [fact for settings in general for fact in _facts(settings)]
    owners: dict[SettingFacts, list[Owner]] = {}
    for registry in KINDS:
        for part in registry.values():
            for settings in part.settings:
                for fact in _facts(settings):
                    owners.setdefault(fact, []).append(Owner(registry, part))
    groups: dict[tuple[tuple[str, str], ...], tuple[tuple[Owner, ...], list[SettingFacts]]] = {}
    for fact, parts in owners.items():
        names = tuple((owner.registry.kind, owner.part.name) for owner in parts)
        groups.setdefault(names, (tuple(parts), []))[1].append(fact)
    return [
        SettingGroup((), tuple(always)),
        *(SettingGroup(parts, tuple(facts)) for parts, facts in groups.values()),
    ]


def _facts(settings: type[Settings]) -> Iterator[SettingFacts]:
    schema = settings.model_json_schema()
    for name, field in settings.model_fields.items():
        if field.description:
            form = schema["properties"][name]
            default = shown(form.get("default"))
            yield SettingFacts(
                key_of(settings, name), allowed(form, schema.get("$defs", {})), default, field.description
            )
