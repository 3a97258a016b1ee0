"""The events of MkDocs in which this package takes part."""

import re
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from website.commonmark import lists_for_python_markdown
from website.outside import outside_files, page_of, shown, with_links_between_pages
from website.pictures import with_pictures_by_scheme
from website.reference.build import all_files, all_pages, navigation

PROJECT = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md")
"""Pages outside docs/ that the navigation has."""


CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
NAME = re.compile(r"(?<=<code>)[^<\s]+(?=</code>)")
WORDS = re.compile(r"(?<=[._/])(?=\w{3})")
PAIR = re.compile(r"(?<=\d) ([±/]) (?=\d)")
GENERATED = "reference/"
"""In the navigation of mkdocs.yml: here come the pages of the reference."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the generated pages into the navigation."""
    config.nav = _with_reference(config.nav)
    return config


def _with_reference(entries: Any) -> Any:
    if isinstance(entries, dict):
        return {title: _with_reference(inner) for title, inner in entries.items()}
    if not isinstance(entries, list):
        return entries
    return [
        expanded for entry in entries for expanded in (navigation() if entry == GENERATED else [_with_reference(entry)])
    ]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add a page for each file outside docs/ that is linked to."""
    documents = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    for path in sorted({*PROJECT, *outside_files([*documents, *PROJECT])}):
        files.append(File.generated(config, page_of(path), content=shown(path), inclusion=InclusionLevel.NOT_IN_NAV))
    for path, content in (all_pages() | all_files()).items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Read links and lists as code hosts do."""
    return lists_for_python_markdown(with_links_between_pages(markdown, page.file.src_uri))


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let pictures follow the scheme that is chosen on the page."""
    return with_pictures_by_scheme(html, page.file.src_uri)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Let long names in tables be broken between their words, but no figure before its error."""
    return CELL.sub(lambda cell: broken_between_words(cell[0]), output)


def broken_between_words(cell: str) -> str:
    """A cell of a table with the places where its lines may end, and without those where they may not."""
    return PAIR.sub("\u00a0\\1\u00a0", NAME.sub(lambda name: WORDS.sub("<wbr>", name[0]), cell))
