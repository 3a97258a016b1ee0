"""The events of MkDocs in which this package takes part."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from website.commonmark import lists_for_python_markdown
from website.outside import outside_files, page_of, shown, with_links_between_pages

PROJECT = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md")
"""Pages outside docs/ that the navigation has."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add a page for each file outside docs/ that is linked to."""
    documents = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    for path in sorted({*PROJECT, *outside_files([*documents, *PROJECT])}):
        files.append(File.generated(config, page_of(path), content=shown(path), inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Read links and lists as code hosts do."""
    return lists_for_python_markdown(with_links_between_pages(markdown, page.file.src_uri))
