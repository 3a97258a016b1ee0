"""The page in a real browser, on a desktop and a phone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..chromium import DESKTOP, PHONE, Browser, no_browser

RGB = "const rgb = c => c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255);"
LIGHTNESS = f"{RGB} const light = c => {{ const [r, g, b] = rgb(c); return 0.2126 * r + 0.7152 * g + 0.0722 * b; }};"


def show(browser: Browser, page: Path, *, width: int = DESKTOP, scheme: str = "light") -> None:
    """Open a page with all its details."""
    browser.open(page.as_uri(), width=width, scheme=scheme)
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")


@pytest.fixture(scope="module")
def pages(
    tmp_path_factory: pytest.TempPathFactory,
    report: Callable[[list[Path], Path], Any],
    write_run: Callable[..., Path],
    make_results: Callable[..., dict[str, Any]],
    make_regression_results: Callable[..., dict[str, Any]],
    add_regression_arrays: Callable[..., None],
    add_modes_arrays: Callable[[Path], None],
    add_uncertainty_arrays: Callable[..., None],
    add_statistics: Callable[..., dict[str, Any]],
) -> dict[str, Path]:
    """The page of one run, and of several methods on two benchmarks."""
    folder = tmp_path_factory.mktemp("pages")
    results = [add_statistics(make_results("pr-bbb")), make_results("sp-dirac"), make_results("vcl")]
    digits = [write_run(folder / run["method"], run) for run in results]
    for lean in digits[1:]:  # curves take most of a page's time
        (lean / "metrics.jsonl").unlink()
    add_uncertainty_arrays(digits[0], strangers=True)
    both = [add_statistics(make_regression_results("pr-avb")), make_regression_results("vcl")]
    curves = [write_run(folder / f"curve-{run['method']}", run) for run in both]
    three = {
        "num_tasks": 3,
        "task_names": ["first", "second", "third"],
        "tgiven_matrix": [[99.0]] * 3,
        "task_confusion": None,
    }
    modes = [
        write_run(folder / f"modes-{name}", make_results(name, benchmark="modes-2d", **three))
        for name in ("pr-bbb", "pr-avb")
    ]
    for run in (*curves, *modes):
        (run / "metrics.jsonl").unlink()
        (add_modes_arrays if run in modes else add_regression_arrays)(run)
    report(digits[:1], folder / "one.html")
    report([*digits, *curves, *modes], folder / "many.html")
    return {"one": folder / "one.html", "many": folder / "many.html"}


def assert_no_text_is_cut_off(browser: Browser) -> None:
    outside = browser.run("""
        return [...document.querySelectorAll('figure svg')].flatMap(svg => {
          const frame = svg.getBoundingClientRect();
          return [...svg.querySelectorAll('text')].filter(text => {
            const box = text.getBoundingClientRect();
            return box.left < frame.left - 4 || box.right > frame.right + 4
              || box.top < frame.top - 4 || box.bottom > frame.bottom + 4;
          }).map(text => text.textContent);
        });""")
    assert outside == []


def assert_text_stands_out_from_the_page(browser: Browser, scheme: str) -> None:
    paper, ink, labels = browser.run(f"""{LIGHTNESS}
        const style = getComputedStyle(document.body);
        const texts = [...document.querySelectorAll('figure svg text')]
          .filter(text => !/#|rgb/.test(text.getAttribute('style') ?? ''));
        return [light(style.backgroundColor), light(style.color), texts.map(t => light(getComputedStyle(t).fill))];""")
    assert (paper > 0.9) == (scheme == "light")
    assert abs(ink - paper) > 0.6
    assert len(labels) > 20
    assert all(abs(label - paper) > 0.3 for label in labels)


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("one", DESKTOP, "dark"), ("one", PHONE, "light"), ("many", DESKTOP, "light"), ("many", PHONE, "dark")],
)
def test_a_page_renders(browser: Browser, pages: dict[str, Path], name: str, width: int, scheme: str) -> None:
    show(browser, pages[name], width=width, scheme=scheme)
    console, requests = browser.logs()
    assert console == []
    # nothing but the page itself
    assert [url for url in requests if not url.startswith("data:")] == [pages[name].as_uri()]
    assert browser.run("return [innerWidth, document.documentElement.scrollWidth]") == [width, width]
    drawings = browser.run("""
        return [...document.querySelectorAll('figure svg')]
          .map(svg => [svg.getBoundingClientRect(), svg.querySelectorAll('path').length]);""")
    assert len(drawings) > 5
    assert all(box["width"] > 100 and box["height"] > 50 and paths for box, paths in drawings)
    if width == DESKTOP:
        assert_no_text_is_cut_off(browser)
    assert_text_stands_out_from_the_page(browser, scheme)


def column(browser: Browser, number: int) -> list[str]:
    script = """
        const rows = [...document.querySelector('table.sortable').tBodies[0].rows];
        return rows.map(row => row.cells[arguments[0]].dataset.sort);"""
    return list(browser.run(script, number))


def test_a_click_on_a_heading_sorts(browser: Browser, pages: dict[str, Path]) -> None:
    from selenium.webdriver.common.by import By

    show(browser, pages["many"])
    headings = browser.driver.find_elements(By.CSS_SELECTOR, "table.sortable")[0].find_elements(
        By.CSS_SELECTOR, "thead button"
    )
    assert column(browser, 0) == ["pr-bbb", "sp-dirac", "vcl"]
    headings[0].click()
    headings[0].click()
    assert column(browser, 0) == ["vcl", "sp-dirac", "pr-bbb"]
    for number in range(2, len(headings)):
        before = column(browser, number)
        known = sorted(float(value) for value in before if value)
        headings[number].click()
        after = column(browser, number)
        assert [float(value) for value in after if value] == known
        assert after[len(known) :] == [""] * (len(before) - len(known))  # what does not apply comes last
        headings[number].click()
        assert [float(value) for value in column(browser, number) if value] == known[::-1]
    sorted_by = browser.run(
        "return [...document.querySelector('table.sortable').tHead.rows[0].cells].map(c => c.ariaSort)"
    )
    assert sorted_by.count("descending") == 1
    assert sorted_by.count("none") == len(headings) - 1
    assert browser.logs()[0] == []


def test_groups_of_criteria_are_sorted_apart(browser: Browser, pages: dict[str, Path]) -> None:
    from selenium.webdriver.common.by import By

    show(browser, pages["one"])
    script = """
        const table = document.querySelector('table.sortable');
        return [...table.tBodies].map(body => [...body.rows].map(row => row.cells[0].dataset.sort ?? ''));"""
    before = browser.run(script)
    browser.driver.find_elements(By.CSS_SELECTOR, "table.sortable thead button")[0].click()
    after = browser.run(script)
    assert [len(group) for group in after] == [1, 5, 7]
    assert after == [group if len(group) == 1 else ["", *sorted(group[1:])] for group in before]  # titles stay on top
    assert before != after


def test_where_there_is_no_browser_the_tests_skip_or_fail() -> None:
    with pytest.raises(pytest.skip.Exception, match="make browser"):
        no_browser({})
    with pytest.raises(pytest.fail.Exception, match="required"):
        no_browser({"METAREPLAY_BROWSER": "required"})
