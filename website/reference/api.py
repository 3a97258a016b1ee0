"""The Python API, from signatures and docstrings (mkdocstrings)."""

import os
from typing import NamedTuple

from website.reference.text import Section, paragraphs

FOLDER = "reference/api"
LATER = "---\nsearch:\n  boost: 0.5\n---\n\n"
"""Search finds other pages first."""
FOLDERS = ("metareplay.living", "metareplay.export")


class Topic(NamedTuple):
    """A page about some names."""

    file: str
    title: str
    about: str
    names: tuple[str, ...]


TOPICS = (
    Topic(
        "estimators",
        "Estimators",
        "Learn tasks one at a time, predict with the task given or inferred, save and load.",
        (
            "metareplay.estimators.ContinualClassifier",
            "metareplay.estimators.ClassPrediction",
            "metareplay.estimators.ContinualRegressor",
            "metareplay.estimators.RealPrediction",
            "metareplay.estimators.Stream",
            "metareplay.estimators.load_estimator",
        ),
    ),
    Topic("living", "Living models", "What the commands for stored models do, as functions.", ("metareplay.living",)),
    Topic("store", "Models on disk", "Read, write, restore.", ("metareplay.learner.store",)),
    Topic(
        "parts",
        "Parts of your own",
        "What a package registers ([add a method](../../add_a_method.md)).",
        (
            "metareplay.settings",
            "metareplay.parts.Registry",
            "metareplay.learner.methods.Method",
            "metareplay.learner.methods.register_method",
            "metareplay.learner.methods.register_family_methods",
            "metareplay.posteriors.base",
            "metareplay.task_maps.base",
            "metareplay.strategies.base",
            "metareplay.inference.criteria.base",
            "metareplay.nets.base",
        ),
    ),
    Topic("results", "Results", "What a run found, typed.", ("metareplay.experiments.results",)),
    Topic("export", "Export", "Networks of a learned model for other tools.", ("metareplay.export",)),
    Topic("errors", "Errors", "What can be caught.", ("metareplay.errors",)),
)


def _described(name: str) -> str:
    """The place where mkdocstrings describes a name; folders without names of their own show those of their files."""
    if os.environ.get("METAREPLAY_SITE_API") == "false":
        return f"`{name}`"
    return f"::: {name}" + ("\n    options:\n      show_submodules: true" if name in FOLDERS else "")


def pages() -> dict[str, str]:
    """A page for each topic, and the page that leads to them."""
    rows = "\n".join(f"- [{topic.title}]({topic.file}.md): {topic.about}" for topic in TOPICS)
    index = paragraphs("# Python API", "What other code may rely on; what is not here is internal.", rows)
    return {f"{FOLDER}/index.md": index} | {
        f"{FOLDER}/{topic.file}.md": LATER
        + paragraphs(f"# {topic.title}", topic.about, *(_described(name) for name in topic.names))
        for topic in TOPICS
    }


def section() -> Section:
    """In the navigation."""
    return Section("Python API", [f"{FOLDER}/index.md", *(f"{FOLDER}/{topic.file}.md" for topic in TOPICS)])
