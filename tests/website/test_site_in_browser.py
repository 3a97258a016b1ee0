"""The site as people see it: phone and desktop, light and dark, from the file system and without a network."""

from typing import Any

import pytest

DESKTOP, PHONE = 1280, 390
PAGES = (
    "index.html",
    "concepts.html",
    "results.html",
    "reference/methods/pr-bbb.html",
    "reference/settings/training.html",
    "reference/errors.html",
)
SCHEME = "document.body.getAttribute('data-md-color-scheme')"
OVERLAPS = """
    return [...document.querySelectorAll('svg.drawn')].flatMap(svg => {
      const frame = svg.getBoundingClientRect();
      const texts = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
      const cut = texts.filter(([, box]) => box.left < frame.left || box.right > frame.right
        || box.top < frame.top || box.bottom > frame.bottom);
      const covered = texts.filter(([, a], i) => texts.some(([, b], j) => i < j && a.left < b.right - 1
        && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4));
      return [...cut, ...covered].map(([words]) => words);
    });"""


@pytest.mark.parametrize(("width", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")])
def test_pages_fit_and_fetch_nothing(browser: Any, width: int, scheme: str) -> None:
    for page in PAGES:
        browser.open(page, width=width, scheme=scheme)
        assert browser.run("return [innerWidth, document.documentElement.scrollWidth]") == [width, width], page
        assert browser.run(f"return {SCHEME}") == ("slate" if scheme == "dark" else "default"), page
        assert browser.complaints() == [], page


def test_drawings_have_no_text_that_is_cut_or_covered(browser: Any) -> None:
    browser.open("concepts.html")
    assert browser.run("return document.querySelectorAll('svg.drawn').length") == 6
    assert browser.run(OVERLAPS) == []


def test_the_scheme_can_be_chosen_and_drawings_follow(browser: Any) -> None:
    browser.open("concepts.html", scheme="light")
    browser.run("localStorage.clear()")
    browser.open("concepts.html", scheme="light")
    ink = "return getComputedStyle(document.querySelector('svg.drawn text')).fill"
    seen = {browser.run(f"return {SCHEME}"): browser.run(ink)}
    for _ in range(2):
        browser.run("""[...document.querySelectorAll('[data-md-component=palette] label')]
            .find(label => !label.hidden).click()""")
        browser.wait("document.querySelector('svg.drawn text') !== null")
        seen[browser.run(f"return {SCHEME}")] = browser.run(ink)
    browser.run("localStorage.clear()")
    assert set(seen) == {"default", "slate"}
    assert len(set(seen.values())) == 2


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_search_finds_a_setting_from_the_file_system(browser: Any, width: int) -> None:
    browser.open("index.html", width=width)
    browser.run("""document.querySelector('#__search').click();
        const box = document.querySelector('[data-md-component=search-query]');
        box.focus(); box.value = 'prior_scale';
        box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})); box.dispatchEvent(new Event('input'));""")
    browser.wait("document.querySelectorAll('.md-search-result__item a').length > 0")
    found = browser.run("return [...document.querySelectorAll('.md-search-result__item a')].map(a => a.href)")
    assert any("reference/settings/posterior.html" in url for url in found)
    assert browser.complaints() == []
