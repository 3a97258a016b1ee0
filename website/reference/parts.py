"""Parts of methods, criteria, and the other things that have names."""

import re

from metareplay.cli.list import section as listed_section
from metareplay.inference.criteria import CRITERIA
from metareplay.learner.compose import KINDS
from metareplay.learner.methods import METHODS
from metareplay.settings import Part, key_of
from website.reference.settings import link
from website.reference.text import about_module, from_docstring, names, paragraphs, sentence, slug

SHAPES = re.compile(r"[;:]? *(?:T times )?\([A-Z][A-Z_a-z, ]*,[A-Z, ]*\)(?: -> \([A-Z, ]+\))?")
"""Of tensors, in docstrings."""
ABOUT = {
    "family": "What the parameters of a task's posterior mean",
    "matching": "How the prior term of the loss is computed",
    "task map": "Who stores the parameters of the tasks' posteriors",
    "strategy": "What binds the tasks",
    "outputs": "Which classes compete where tasks share their weights",
}


def anchor(kind: str, name: str) -> str:
    """Of a part on its page."""
    return f"{slug(kind.replace(' ', '-'))}-{slug(name)}"


def method_links(methods: list[str]) -> str:
    """Links to the pages of methods."""
    return ", ".join(f"[`{name}`](methods/{slug(name)}.md)" for name in methods)


def settings_links(part: Part) -> str:
    """Links to the settings of a part."""
    keys = [key_of(settings, name) for settings in part.settings for name in settings.model_fields]
    return ", ".join(link(key, "settings") for key in dict.fromkeys(keys))


def _part(kind: str, part: Part) -> str:
    methods = [name for name, method in METHODS.items() if method.parts()[kind].name == part.name]
    settings = settings_links(part)
    return paragraphs(
        f"### {part.name} {{ #{anchor(kind, part.name)} }}",
        f"A method with it has {part.phrase}.",
        about_module(getattr(part, "build", None)),
        f"Settings: {settings}" if settings else "",
        f"Methods: {method_links(methods)}" if methods else "",
    )


def parts_page() -> str:
    """What methods are made of."""
    blocks = [
        "# Parts",
        "The parts that methods are built from. A package can add more: [add a method](../add_a_method.md).",
    ]
    for registry in KINDS:
        if registry.kind in ABOUT:
            blocks += [f"## {registry.kind.capitalize()}", f"{ABOUT[registry.kind]}."]
            blocks += [_part(registry.kind, part).strip() for part in registry.values()]
    return paragraphs(*blocks)


def criteria_page() -> str:
    """How a task is inferred."""
    blocks = [
        "# Criteria",
        "How the task of an input is chosen if it is not given: the lowest score wins. "
        "`metareplay predict --criterion NAME`, or `criterion=NAME` in Python, selects one; "
        "[how it works](../concepts.md#task-inference-and-uncertainty) explains the default, `stats`.",
    ]
    for criterion in CRITERIA.values():
        compared = criterion.compare.__name__ != "_unchanged"
        function = criterion.compare if compared else criterion.score
        needs = {
            "several weight samples": criterion.needs_samples,
            "auxiliary outputs (`training.other`)": criterion.needs_auxiliary,
            "the statistics that every model stores of its tasks": criterion.reads_statistics,
        }
        needed = [need for need, wanted in needs.items() if wanted]
        settings = settings_links(criterion)
        blocks += [
            f"## {criterion.name}",
            f"Chooses the task with the {criterion.description}.",
            f"Score: {SHAPES.sub('', from_docstring(function.__doc__))}" if function is not None else "",
            about_module(function),
            f"For {names(criterion.problems)}. Needs {', '.join(needed) or 'one weight sample or more'}.",
            f"Settings: {settings}" if settings else "",
        ]
    return paragraphs(*blocks)


def listed_page(title: str, *kinds: str) -> str:
    """What `metareplay list KIND --markdown` prints, as a page."""
    if len(kinds) == 1:
        return listed_section(kinds[0]).removeprefix("#") + "\n"
    return paragraphs(f"# {title}", *map(listed_section, kinds))


def about(part: Part) -> str:
    """One sentence about a part, for the pages of methods."""
    lines = about_module(getattr(part, "build", None)).split("\n\n")[0]
    return lines or sentence(part.phrase)
