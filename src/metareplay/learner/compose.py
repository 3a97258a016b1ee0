"""A method's settings, composed of exactly those of its parts; and which parts have a setting."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from pydantic import create_model

from metareplay.benchmarks.settings import TaskSettings
from metareplay.data.settings import DataSettings
from metareplay.errors import listed
from metareplay.inference.criteria import CRITERIA
from metareplay.inference.settings import InferenceSettings
from metareplay.inference.statistics.settings import StatisticsSettings
from metareplay.learner.methods import METHODS, OUTPUTS, Method, settings_of
from metareplay.learner.report_settings import ReportSettings
from metareplay.likelihoods import LikelihoodSettings
from metareplay.nets.base import NETWORKS, NetworkPart
from metareplay.nets.registry import network_kind
from metareplay.parts import Registry, check_settings
from metareplay.posteriors.base import FAMILIES, MATCHINGS
from metareplay.settings import Part, Settings, key_of
from metareplay.strategies.base import STRATEGIES
from metareplay.task_maps.base import TASK_MAPS
from metareplay.training.settings import TrainingSettings

KINDS: tuple[Registry[Any], ...] = (FAMILIES, MATCHINGS, TASK_MAPS, STRATEGIES, OUTPUTS, NETWORKS, CRITERIA)
"""Every kind of part."""
ALWAYS: tuple[type[Settings], ...] = (
    LikelihoodSettings,
    TrainingSettings,
    InferenceSettings,
    StatisticsSettings,
    TaskSettings,
    DataSettings,
    ReportSettings,
)
"""Settings that every method has."""


MOST_PHRASES = 4
"""The maximum number of parts named in an error message."""


class Owner(NamedTuple):
    """A part that has a setting."""

    registry: Registry[Any]
    part: Part


def components(method: Method, network: NetworkPart, run: type[Settings]) -> tuple[type[Settings], ...]:
    """The settings classes of a method's parts and of its network; refused if they, or those of a run, disagree."""
    parts = settings_of({**method.parts(), "network": network})
    parts |= {f"the criterion {name!r}": criterion.settings for name, criterion in CRITERIA.items()}
    check_settings(method.name, {"every run": (run, *ALWAYS), **parts})
    return tuple(dict.fromkeys((*(settings for classes in parts.values() for settings in classes), *ALWAYS)))


def most_derived(classes: Sequence[type[Settings]]) -> tuple[type[Settings], ...]:
    """Without the classes that another one of them extends."""
    return tuple(
        base for base in classes if not any(other is not base and issubclass(other, base) for other in classes)
    )


@cache
def composed(group: str, classes: tuple[type[Settings], ...]) -> type[Settings]:
    """One class with the settings of several; its instances are instances of each of them."""
    name = f"{group.title()}Settings"
    return create_model(name, __base__=most_derived(classes) or (Settings,), __module__=__name__)


def owners(key: str) -> Iterator[Owner]:
    """All parts that have a setting."""
    for registry in KINDS:
        for part in registry.values():
            if any(key == key_of(settings, name) for settings in part.settings for name in settings.model_fields):
                yield Owner(registry, part)


def is_default(key: str, value: object) -> bool:
    """Whether a value is the default of a setting that some part has."""
    return any(
        key == key_of(settings, name) and value == field.default
        for owner in owners(key)
        for settings in owner.part.settings
        for name, field in settings.model_fields.items()
    )


def parts_of(method: Method, network: str) -> dict[str, Part]:
    """A method's parts and its network, by kind."""
    return {**method.parts(), "network": replace(network_kind(network), phrase=network)}


def refusal(key: str, method: str, parts: Mapping[str, Part]) -> str:
    """Why a method does not have a setting that others have, in the parts' own phrases."""
    parts_with_key = list(owners(key))
    phrases = list(dict.fromkeys(owner.part.phrase for owner in parts_with_key))
    phrases = phrases if len(phrases) <= MOST_PHRASES else [*phrases[: MOST_PHRASES - 1], "others"]
    registry = parts_with_key[0].registry
    kind = "family" if registry is MATCHINGS and parts["matching"].name == "direct" else registry.kind
    has = f"; {method} {FAMILIES.verb if registry is MATCHINGS else registry.verb} {parts[kind].phrase}"
    example = _nearest(key, registry, parts)
    hint = f", or choose a method such as {example}" if example is not None else ""
    return f"{key} belongs to {listed(phrases, 'and')}{has if kind in parts else ''}. Remove it{hint}"


def _nearest(key: str, registry: Registry[Any], parts: Mapping[str, Part]) -> str | None:
    """The method that has a setting by a part of this kind, and otherwise shares most parts with another method."""
    rows = {name: method.parts() for name, method in METHODS.items()}
    names = [name for name, row in rows.items() if registry.kind in row and _has(row[registry.kind], key)]
    return max(names, key=lambda name: _shared_parts(rows[name], parts), default=None)


def _shared_parts(row: Mapping[str, Part], parts: Mapping[str, Part]) -> int:
    return sum(part.name == parts[kind].name for kind, part in row.items())


def _has(part: Part, key: str) -> bool:
    return any(key == key_of(settings, name) for settings in part.settings for name in settings.model_fields)
