"""The site as people see it: phone and desktop, light and dark, from the file system and without a network."""

import pytest

from ..chromium import DESKTOP, PHONE
from .conftest import Visit

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
def test_pages_fit_and_fetch_nothing(visit: Visit, width: int, scheme: str) -> None:
    for page in PAGES:
        visit.open(page, width=width, scheme=scheme)
        assert visit.run("return [innerWidth, document.documentElement.scrollWidth]") == [width, width], page
        assert visit.run(f"return {SCHEME}") == ("slate" if scheme == "dark" else "default"), page
        assert visit.complaints() == [], page


def test_drawings_have_no_text_that_is_cut_or_covered(visit: Visit) -> None:
    visit.open("concepts.html")
    assert visit.run("return document.querySelectorAll('svg.drawn').length") == 6
    assert visit.run(OVERLAPS) == []


def test_the_scheme_can_be_chosen_and_drawings_follow(visit: Visit) -> None:
    visit.open("concepts.html", scheme="light")
    visit.run("localStorage.clear()")
    visit.open("concepts.html", scheme="light")
    ink = "return getComputedStyle(document.querySelector('svg.drawn text')).fill"
    seen = {visit.run(f"return {SCHEME}"): visit.run(ink)}
    for _ in range(2):
        visit.run("""[...document.querySelectorAll('[data-md-component=palette] label')]
            .find(label => !label.hidden).click()""")
        visit.wait("document.querySelector('svg.drawn text') !== null")
        seen[visit.run(f"return {SCHEME}")] = visit.run(ink)
    visit.run("localStorage.clear()")
    assert set(seen) == {"default", "slate"}
    assert len(set(seen.values())) == 2


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_search_finds_a_setting_from_the_file_system(visit: Visit, width: int) -> None:
    visit.open("index.html", width=width)
    visit.run("""document.querySelector('#__search').click();
        const box = document.querySelector('[data-md-component=search-query]');
        box.focus(); box.value = 'prior_scale';
        box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})); box.dispatchEvent(new Event('input'));""")
    visit.wait("document.querySelectorAll('.md-search-result__item a').length > 0")
    found = visit.run("return [...document.querySelectorAll('.md-search-result__item a')].map(a => a.href)")
    assert any("reference/settings/posterior.html" in url for url in found)
    assert visit.complaints() == []
