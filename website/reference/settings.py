"""A page for each group of settings, with every setting as a heading of its own that links lead to."""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from metareplay.learner.compose import Owner
from metareplay.learner.methods import METHODS
from metareplay.learner.reference import SettingFacts, SettingGroup, setting_groups
from website.reference.text import Section, code, names, paragraphs, sentence, table

GENERAL = "general"
"""The page of the settings without a group."""
TITLES = {
    "general": "what a run is about",
    "data": "how your own data are read",
    "tasks": "how data become tasks",
    "training": "how long and how each task is learned",
    "posterior": "the distribution over weights",
    "hypernet": "the network that makes posteriors",
    "strategy": "what binds the tasks",
    "inference": "how inputs are answered",
    "statistics": "what is stored about tasks to tell them apart",
    "report": "what a run measures besides",
}
FOLDER = "reference/settings"


@cache
def groups_of_settings() -> list[SettingGroup]:
    """All settings, by the parts that have them."""
    return setting_groups()


class Entry(NamedTuple):
    """A setting as some parts have it."""

    facts: SettingFacts
    group: SettingGroup


def by_page() -> dict[str, dict[str, list[Entry]]]:
    """The entries of every setting, by page and key."""
    pages: dict[str, dict[str, list[Entry]]] = {name: {} for name in TITLES}
    for group in groups_of_settings():
        for facts in group.settings:
            pages.setdefault(page_of(facts.key), {}).setdefault(facts.key, []).append(Entry(facts, group))
    return {name: dict(sorted(keys.items())) for name, keys in pages.items() if keys}


def page_of(key: str) -> str:
    """The page that describes a setting."""
    return key.rpartition(".")[0] or GENERAL


def link(key: str, folder: str) -> str:
    """A link to a setting; ``folder`` leads from the page to that of the settings."""
    return f"[{code(key)}]({folder}/{page_of(key)}.md#{key})"


def owner_names(owners: tuple[Owner, ...]) -> str:
    """Parts by kind."""
    by_kind: dict[str, list[str]] = {}
    for owner in owners:
        by_kind.setdefault(owner.registry.kind, []).append(owner.part.name)
    return "; ".join(f"{kind} {names(parts)}" for kind, parts in by_kind.items())


def _entry(entry: Entry) -> str:
    """What is allowed, the default, who has it."""
    group = entry.group
    methods = group.methods()
    others = [name for name in METHODS if name not in methods]
    few = len(methods) <= len(others)
    which = "every method" if not others else f"{'' if few else 'all but '}{names(methods if few else others)}"
    who = f"{owner_names(group.owners)}; methods: {which}" if group.owners else "every run"
    return table(("allowed", "default", "who has it"), [(entry.facts.allowed, code(entry.facts.default), who)])


def _setting(key: str, entries: list[Entry]) -> Iterator[str]:
    yield f"### {code(key)} {{ #{key} }}"
    told = ""
    for entry in entries:
        if entry.facts.description != told:
            told = entry.facts.description
            yield sentence(told)
        yield _entry(entry)


def _page(name: str, keys: dict[str, list[Entry]]) -> str:
    about = sentence(TITLES.get(name, "settings of installed parts"))
    title = "General settings" if name == GENERAL else f"{name} settings"
    blocks = [block for key, entries in keys.items() for block in _setting(key, entries)]
    return paragraphs(f"# {title}", about, *blocks)


def pages() -> dict[str, str]:
    """All of them, and the page that leads to them."""
    groups = by_page()
    rows = [
        (f"[{name}]({name}.md)", str(len(keys)), TITLES.get(name, "settings of installed parts"))
        for name, keys in groups.items()
    ]
    index = paragraphs(
        "# Settings",
        "Set them with `--set key=value`, in a file given with `--config`, or in an estimator's `settings`. A method "
        "has exactly the settings of its parts; recipes replace many of these defaults. A setting without effect in a "
        "combination is refused with the reason. `metareplay list settings` prints all of them.",
        table(("group", "settings", "about"), rows),
    )
    return {f"{FOLDER}/index.md": index} | {f"{FOLDER}/{name}.md": _page(name, keys) for name, keys in groups.items()}


def section() -> Section:
    """In the navigation."""
    return Section("Settings", [f"{FOLDER}/index.md", *(f"{FOLDER}/{name}.md" for name in by_page())])
