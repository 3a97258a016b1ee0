"""The site builds strictly (a broken link, an unknown anchor, a page that the navigation forgot fails), needs nothing
from elsewhere, and its reference has everything that has a name."""

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from metareplay.inference.criteria import CRITERIA
from metareplay.learner.config import setting_descriptions
from metareplay.learner.methods import METHODS
from website.reference.commands import commands
from website.reference.errors import classes
from website.reference.text import slug

ROOT = Path(__file__).parents[2]


def text(page: Path) -> str:
    return re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))


def test_files_outside_docs_are_pages(site: Path) -> None:
    for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY", "examples/index", "examples/stream.py"):
        assert (site / "repository" / f"{name}.html").is_file()
    assert 'href="repository/CONTRIBUTING.html"' in (site / "index.html").read_text(encoding="utf-8")


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href|srcset)="(?:https?:)?//[^"]*"')
    pages = [*site.rglob("*.html")]
    found = {page.name: match[0] for page in pages if (match := fetched.search(page.read_text(encoding="utf-8")))}
    assert len(pages) > 100
    assert found == {}
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", styles)


def test_every_file_that_a_page_names_is_there(site: Path) -> None:
    """Also those in HTML, which MkDocs does not look at."""
    named = re.compile(r'\b(?:href|src|srcset)="(?![a-z]+:|#|//)([^"#?]+)')
    found = {
        (page.parent / unquote(target)).resolve()
        for page in site.rglob("*.html")
        if page.name != "404.html"
        for target in set(named.findall(page.read_text(encoding="utf-8")))
    }
    assert len(found) > 150
    assert [str(path) for path in sorted(found) if not path.exists()] == []


def test_every_method_has_a_page(site: Path) -> None:
    for name in METHODS:
        page = text(site / "reference" / "methods" / f"{slug(name)}.html")
        for heading in ("When to take it", "Parts", "Settings", "Recipes", "Measured"):
            assert heading in page, name


def test_every_setting_has_an_entry_that_links_can_lead_to(site: Path) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (site / "reference" / "settings").glob("*.html"))
    anchors = set(re.findall(r'<h3 id="([^"]+)"', pages))
    assert set(setting_descriptions()) <= anchors


def test_every_command_criterion_and_error_is_described(site: Path) -> None:
    for name, command in commands().items():
        page = text(site / "reference" / "commands" / f"{name}.html")
        flags = [flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")]
        assert [flag for flag in flags if flag not in page] == [], name
    criteria, errors = text(site / "reference" / "criteria.html"), text(site / "reference" / "errors.html")
    assert all(criterion.description[:20] in criteria for criterion in CRITERIA.values())
    assert all(kind.__name__ in errors for kind in classes())
    assert "is unknown; choose one of" in errors  # a sentence of the package


def test_results_have_a_schema_that_explains_its_keys(site: Path) -> None:
    schema = json.loads((site / "reference" / "schemas" / "results.schema.json").read_text(encoding="utf-8"))
    assert "right after learning it" in schema["properties"]["tgiven_during"]["description"]
    assert "kind" in schema["$defs"]["TaskWarning"]["required"]


def test_five_doors() -> None:
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("", lambda *_: None)
    content = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    doors = [name for entry in content["nav"] for name in entry]
    assert doors == ["Start", "Tutorials", "How it works", "Reference", "Results"]
    assert content["strict"] is True
    assert {level for kind in content["validation"].values() for level in kind.values()} == {"warn"}  # so they fail


def test_the_workflow_publishes_what_make_docs_builds() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "docs.yml").read_text(encoding="utf-8"))["jobs"]
    steps = jobs["build"]["steps"]
    assert {"run": "make docs"} in steps
    assert steps[-1]["with"]["path"] == "site"
    assert jobs["publish"]["permissions"] == {"pages": "write", "id-token": "write"}


@pytest.mark.slow
def test_the_python_api_is_described(whole_site: Path) -> None:
    assert "learn_task" in text(whole_site / "reference" / "api" / "estimators.html")
    assert "register_method" in text(whole_site / "reference" / "api" / "parts.html")
