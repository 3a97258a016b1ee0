"""A page for every method: what it is, when to use it, its parts, settings, recipes and measured figures."""

import yaml

from metareplay.cli.advice import ADVICE
from metareplay.learner.methods import METHODS, Method
from metareplay.learner.recipe_book import Recipe, all_recipes
from metareplay.settings import nest
from website.reference.measured import figures_of
from website.reference.parts import about, anchor
from website.reference.settings import groups_of_settings, link
from website.reference.text import Section, code, paragraphs, sentence, slug, table

FOLDER = "reference/methods"
UP = ".."


def page_name(method: str) -> str:
    """The file of a method's page."""
    return f"{slug(method)}.md"


def links(methods: list[str]) -> str:
    """Links between pages of methods."""
    return ", ".join(f"[{code(name)}]({page_name(name)})" for name in methods)


def _when(method: Method) -> str:
    """When to use it, or otherwise the closest methods for which there is advice."""
    own = [f"- If {advice.situation}: {advice.why}." for advice in ADVICE if method.name in advice.methods]
    if own:
        return "\n".join(own)
    advised = {name for advice in ADVICE for name in advice.methods}
    parts = {kind: part.name for kind, part in method.parts().items()}
    shared = {
        other.name: sum(part.name == parts[kind] for kind, part in other.parts().items())
        for other in METHODS.values()
        if other.name in advised
    }
    nearest = [name for name, number in shared.items() if number == max(shared.values())]
    return (
        f"No [situation](index.md#which-to-use-when) calls for it first. The closest methods that are recommended: "
        f"{links(nearest[:3])}."
    )


def _use(method: Method) -> str:
    if method.for_regression is not None:
        regression = f"For regression use {links([method.for_regression])}."
    else:
        regression = "It works for classification and regression."
    network = f" Its network, if none is named, is `{method.network}`." if method.network else ""
    closed = " It takes no training steps: its weights are computed when a task ends." if method.closed_form else ""
    call = f'model = ContinualClassifier(method="{method.name}")'
    return paragraphs(
        f"```bash\nmetareplay run split-digits --method {method.name}\n```",
        f"```python\n{call}\n```",
        f"{regression}{network}{closed}",
    ).strip()


def _parts(method: Method) -> str:
    rows = []
    for kind, part in method.parts().items():
        name = f"{kind} [{code(part.name)}]({UP}/parts.md#{anchor(kind, part.name)})"
        more = about(part)
        rows.append((name, sentence(part.phrase) + (f" {more}" if more != sentence(part.phrase) else "")))
    return table(("part", "it has"), rows)


def _settings(method: Method) -> str:
    rows = []
    for group in groups_of_settings():
        kinds = {owner.registry.kind for owner in group.owners}
        if group.owners and not kinds & {"network", "criterion"} and method.name in group.methods():
            rows += [
                (
                    link(fact.key, f"{UP}/settings"),
                    f"{sentence(fact.description)}<br>{fact.allowed}; default {code(fact.default)}",
                )
                for fact in group.settings
            ]
    also = (
        f"And those of every run: [training]({UP}/settings/training.md), [inference]({UP}/settings/inference.md), "
        f"[statistics]({UP}/settings/statistics.md), [data]({UP}/settings/data.md), [others]({UP}/settings/index.md)."
    )
    if not rows:
        return f"Its parts have no settings of their own. {also}"
    return paragraphs(table(("setting", "meaning, what is allowed, default"), rows), also).strip()


def _recipe(recipe: Recipe) -> str:
    text = yaml.safe_dump(nest(recipe.settings), sort_keys=False, default_flow_style=None, width=100).strip()
    fast = ", fast" if recipe.fast else ""
    indented = "\n".join(f"    {line}" for line in ["```yaml", *text.splitlines(), "```"])
    return f'??? note "{recipe.benchmark}, {recipe.network}{fast}: {recipe.source}"\n\n{indented}'


def _recipes(method: Method) -> str:
    own = [recipe for recipe in all_recipes() if recipe.method == method.name]
    lent = [name for name in method.lenders if any(recipe.method == name for recipe in all_recipes())]
    blocks = [_recipe(recipe) for recipe in own]
    if lent:
        blocks.append(f"{'Elsewhere it' if own else 'It'} borrows the recipes of {links(lent)}.")
    return paragraphs(*blocks).strip() or "None of its own: it starts from the defaults of its settings."


def _page(method: Method) -> str:
    measured = figures_of(method.name)
    return paragraphs(
        f"# {method.name}",
        sentence(method.description),
        _use(method),
        "## When to take it",
        _when(method),
        "## Parts",
        _parts(method),
        "## Settings",
        _settings(method),
        "## Recipes",
        _recipes(method),
        "## Measured",
        measured or "No figures are recorded for it yet.",
    )


def groups() -> dict[str, list[Method]]:
    """Methods by what binds their tasks; strategies that serve one method each come last, together."""
    by_strategy: dict[str, list[Method]] = {}
    for method in METHODS.values():
        parts = method.parts()
        separate = getattr(parts["task map"], "separate", False)
        title = parts["task map"].phrase if separate else parts["strategy"].phrase
        by_strategy.setdefault(title, []).append(method)
    small = [title for title, methods in by_strategy.items() if len(methods) < 3]
    others = [method for title in small for method in by_strategy.pop(title)]
    return {title[0].upper() + title[1:]: methods for title, methods in by_strategy.items()} | {"Others": others}


def _index() -> str:
    advice = [(advice.situation, links([*advice.methods]), advice.why) for advice in ADVICE]
    blocks = [
        "# Methods",
        "A method is a row that names its parts, and its settings are exactly those of its parts. "
        f"Choose one with `metareplay run --method NAME` or `ContinualClassifier(method=NAME)`. "
        f"[{code('metareplay list methods')}]({UP}/commands/list.md) prints this list.",
        "## Which to use when",
        table(("if", "use", "because"), advice),
    ]
    for title, methods in groups().items():
        rows = [(links([method.name]), method.description) for method in methods]
        blocks += [f"## {title}", table(("method", "what it is"), rows)]
    return paragraphs(*blocks)


def pages() -> dict[str, str]:
    """All of them, and the page that leads to them."""
    return {f"{FOLDER}/index.md": _index()} | {
        f"{FOLDER}/{page_name(name)}": _page(method) for name, method in METHODS.items()
    }


def section() -> Section:
    """In the navigation."""
    entries = [
        Section(title, [f"{FOLDER}/{page_name(method.name)}" for method in methods])
        for title, methods in groups().items()
    ]
    return Section("Methods", [f"{FOLDER}/index.md", *entries])
