"""Links to files outside docs/ lead to pages."""

import pytest

from website.outside import file_of, outside_files, page_of, with_links_between_pages
from website.pictures import with_pictures_by_scheme


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("docs/results.md", "results.md"),
        ("SECURITY.md", "repository/SECURITY.md"),
        ("examples/stream.py", "repository/examples/stream.py.md"),
    ],
)
def test_pages_of_files(path: str, page: str) -> None:
    assert page_of(path) == page
    assert file_of(page) == path


def test_links_are_rewritten_outside_code_only() -> None:
    text = (
        "[a](../SECURITY.md#x) [b](results.md) [c](../README.md) [d](https://e.org)\n```text\n[a](../SECURITY.md)\n```"
    )
    assert with_links_between_pages(text, "limits.md") == (
        "[a](repository/SECURITY.md#x) [b](results.md) [c](index.md) [d](https://e.org)\n"
        "```text\n[a](../SECURITY.md)\n```"
    )
    assert with_links_between_pages("[a](docs/limits.md)", "repository/SECURITY.md") == "[a](../limits.md)"
    assert with_links_between_pages("[a](../README.md#cite)", "limits.md") == "[a](repository/README.md#cite)"
    picture = '<img src="docs/images/a.svg">'
    assert with_links_between_pages(picture, "repository/README.md") == picture  # no such file
    picture = '<img src="docs/images/regression-1d-light.svg">'
    assert with_links_between_pages(picture, "repository/README.md") == '<img src="../images/regression-1d-light.svg">'


def test_links_are_followed() -> None:
    assert "examples/stream.py" in outside_files(["README.md"])


def test_pictures_have_a_form_for_each_scheme() -> None:
    html = '<picture><source media="(x)" srcset="a-dark.svg"><img alt="A" src="a-light.svg"></picture>'
    assert with_pictures_by_scheme(html, "index.md") == (
        '<img alt="A" src="a-light.svg#only-light"><img alt="A" src="a-dark.svg#only-dark">'
    )
