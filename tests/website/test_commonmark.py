"""Lists are read as code hosts read them."""

import re
from pathlib import Path

import pytest
from markdown import markdown
from markdown_it import MarkdownIt

from website.commonmark import lists_for_python_markdown

DOCS = Path(__file__).parents[2] / "docs"


def lists(html: str) -> list[str]:
    """Where lists and their items begin and end, and the first word of each item."""
    plain = re.sub(r"<li>\s*", "<li>", re.sub(r"</?p>", "", html))
    return re.findall(r"</?[ou]l|<li>(?:<[^/][^>]*>)*\w*", plain)


def both(text: str) -> tuple[list[str], list[str]]:
    """As the site and as code hosts see the lists of a document."""
    ours = markdown(lists_for_python_markdown(text), extensions=["fenced_code", "sane_lists", "tables"])
    return lists(ours), lists(MarkdownIt("commonmark").enable("table").render(text))


@pytest.mark.parametrize(
    "text",
    [
        "Words\n- a\n- b\n\nMore",
        "- a\n  - b\n  - c\n- d",
        "1. a\n\n   b\n2. c",
        "10. a\n    b\n\nc",
        "1. a\n   - b\n     c\n2. d\n\nWords",
        "* a\n\n* b\n\n      code",
        "```text\n- a\n  - b\n```",
        "a\n\nb",
    ],
)
def test_lists(text: str) -> None:
    ours, theirs = both(text)
    assert ours == theirs


def test_paragraphs_of_an_item_stay_in_it() -> None:
    html = markdown(lists_for_python_markdown("1. a\n\n   b\n2. c\n\nd"))
    assert html.index("b") < html.index("</ol>") < html.index("d")


def test_the_documents_have_the_same_lists() -> None:
    different = []
    for path in DOCS.rglob("*.md"):
        ours, theirs = both(path.read_text(encoding="utf-8"))
        if ours != theirs:
            different.append(path.name)
    assert different == []
