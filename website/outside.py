"""Files of the repository that are not in docs/ but that its pages link to: each becomes a page of the site.

Links are written as they work on a code host, from file to file. Here they are turned into links from page to page.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = "docs"
FOLDER = "repository"
"""Where these pages are on the site."""
INSTEAD = {"README.md": "index.md"}
"""Links to the README as a whole lead to the start page; those to its headings lead to itself."""
LINK = re.compile(r"(\]\()((?!\w+:|#|/)[^)\s#]+)((?:#[^)\s]*)?\))")
SOURCE = re.compile(r'(\b(?:src|srcset)=")((?!\w+:|#|/)[^"\s#]+)(")')
"""Of pictures in HTML."""
FENCE = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".sh": "bash", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json"}


def page_of(path: str) -> str:
    """The page, relative to docs/, that shows a file of the repository."""
    if path.startswith(f"{DOCS}/"):
        return path.removeprefix(f"{DOCS}/")
    return f"{FOLDER}/{path if path.endswith('.md') else f'{path}.md'}"


def file_of(page: str) -> str:
    """The file of the repository that a page shows."""
    if page.startswith(f"{FOLDER}/"):
        name = page.removeprefix(f"{FOLDER}/")
        return name if (ROOT / name).is_file() else name.removesuffix(".md")
    return f"{DOCS}/{page}"


def with_links_between_pages(text: str, page: str) -> str:
    """The Markdown of a page, whose links to files outside docs/ lead to the pages that show them."""
    here = posixpath.dirname(file_of(page))

    def rewritten(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, link[2]))
        if not (ROOT / target).is_file():  # generated, or broken: MkDocs will say so
            return link[0]
        found = INSTEAD[target] if target in INSTEAD and "#" not in link[3] else page_of(target)
        return f"{link[1]}{posixpath.relpath(found, posixpath.dirname(page) or '.')}{link[3]}"

    pieces, end = [], 0
    for fence in FENCE.finditer(text):
        pieces += [SOURCE.sub(rewritten, LINK.sub(rewritten, text[end : fence.start()])), fence[0]]
        end = fence.end()
    return "".join([*pieces, SOURCE.sub(rewritten, LINK.sub(rewritten, text[end:]))])


def linked_from(path: str) -> Iterator[str]:
    """Files outside docs/ that a Markdown file of the repository links to."""
    text = FENCE.sub("", (ROOT / path).read_text(encoding="utf-8"))
    for link in LINK.finditer(text):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[2]))
        if not target.startswith(("..", f"{DOCS}/")) and (ROOT / target).is_file():
            yield target


def outside_files(documents: list[str]) -> list[str]:
    """All files outside docs/ that these lead to, directly or through each other."""
    found: list[str] = []
    waiting = [*documents]
    while waiting:
        for target in linked_from(waiting.pop()):
            if target not in found:
                found.append(target)
                if target.endswith(".md"):
                    waiting.append(target)
    return sorted(found)


def shown(path: str) -> str:
    """The Markdown that shows a file: itself, or its text as a block of code."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    return f"# {Path(path).name}\n\n`{path}`\n\n````{LANGUAGES.get(Path(path).suffix, 'text')}\n{text.rstrip()}\n````\n"
