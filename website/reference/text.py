"""Small pieces of Markdown."""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Section:
    """Pages that belong together in the navigation: a title, and pages by path or further sections."""

    title: str
    entries: "list[str | Section]" = field(default_factory=list)

    def nav(self) -> dict[str, list[Any]]:
        """As mkdocs.yml would have it."""
        return {self.title: [entry.nav() if isinstance(entry, Section) else entry for entry in self.entries]}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; bars in cells are escaped."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(header), f"|{'---|' * len(header)}", *map(line, rows)])


def code(text: str) -> str:
    """A name."""
    return f"`{text}`"


def names(words: Iterable[str]) -> str:
    """Names, one after another."""
    return ", ".join(map(code, words))


def slug(name: str) -> str:
    """A name as the name of a file: der++ is der-plus-plus."""
    return re.sub(r"[^\w-]", "", name.replace("+", "-plus"))


def paragraphs(*blocks: str) -> str:
    """A page of these blocks, without the empty ones."""
    return "\n\n".join(block for block in blocks if block) + "\n"


def from_docstring(text: str | None) -> str:
    """A docstring as Markdown: names between two backticks keep one."""
    lines = re.sub(r"``([^`]+)``", r"`\1`", text or "").strip().splitlines()
    return "\n".join(line.removeprefix("    ") for line in lines)


def about_module(function: object) -> str:
    """What the module of a function says about itself."""
    module = sys.modules.get(getattr(function, "__module__", ""))
    return from_docstring(module.__doc__) if module is not None else ""


def sentence(phrase: str) -> str:
    """A phrase with a capital letter and a full stop."""
    return f"{phrase[0].upper()}{phrase[1:]}{'' if phrase.endswith('.') else '.'}" if phrase else ""
