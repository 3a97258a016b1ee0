"""All pages of the reference, and their place in the navigation."""

from typing import Any

from website.reference import api, commands, errors, methods, parts, schemas, settings
from website.reference.text import paragraphs

SINGLE = {
    "reference/parts.md": parts.parts_page,
    "reference/criteria.md": parts.criteria_page,
    "reference/networks.md": lambda: parts.listed_page("Networks", "networks"),
    "reference/benchmarks.md": lambda: parts.listed_page("Benchmarks", "benchmarks"),
    "reference/recipes.md": lambda: parts.listed_page("Recipes", "recipes"),
    "reference/tables.md": lambda: parts.listed_page("Tables and figures", "tables", "figures"),
    "reference/files.md": schemas.page,
    "reference/errors.md": errors.page,
}
INDEX = """# Reference

Generated from the parts themselves whenever the site is built, so it says what this version does.

- [Methods](methods/index.md): what each is, when to use it, its parts, settings, recipes and measured figures
- [Parts](parts.md): what methods are made of: task maps, posterior families, estimators of the prior term, strategies
- [Settings](settings/index.md): every setting, what is allowed, the default, which methods have it
- [Criteria](criteria.md): how the task of an input is inferred
- [Networks](networks.md), [benchmarks](benchmarks.md), [recipes](recipes.md), [tables and figures](tables.md)
- [Commands](commands/index.md): what each does, with all its options
- [Files and schemas](files.md); [a model on disk](../model_files.md); a run's
  [folder](../appendix/runs.md#a-runs-folder)
- [Errors](errors.md): the classes, and every sentence that a mistake is answered with
- [Python API](api/index.md): estimators, living models, parts of your own
- [Limits](../limits.md) and [reliability](../reliability.md): how much is allowed, what is promised when things
  fail

The lists on one page, as `metareplay list all --markdown` prints them: [everything that has a name](../reference.md).
"""


def all_pages() -> dict[str, str]:
    """Markdown by path."""
    single = {path: make() for path, make in SINGLE.items()}
    several = [kind.pages() for kind in (methods, settings, commands, api)]
    return (
        {"reference/index.md": paragraphs(INDEX.strip())} | single | {k: v for kind in several for k, v in kind.items()}
    )


def all_files() -> dict[str, str]:
    """Files that are no pages."""
    return schemas.schema_files()


def navigation() -> list[Any]:
    """The entries of the door *Reference* that are generated."""
    lists = ("parts", "criteria", "networks", "benchmarks", "recipes", "tables")
    return [
        "reference/index.md",
        methods.section().nav(),
        settings.section().nav(),
        commands.section().nav(),
        api.section().nav(),
        {"Parts and lists": [*(f"reference/{name}.md" for name in lists), {"All lists on one page": "reference.md"}]},
        "reference/files.md",
        "reference/errors.md",
    ]
