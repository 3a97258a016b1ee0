"""The page in a real browser, on a desktop and a phone; without one these tests are skipped (see tests/report)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..chromium import DESKTOP, Browser
from .conftest import NASTY, Client

PHONE = 375


def show(browser: Browser, client: Client, width: int = DESKTOP, scheme: str = "light") -> None:
    """Open the server's page."""
    browser.open(f"http://127.0.0.1:{client.port}/", width=width, scheme=scheme)


@pytest.mark.parametrize(("width", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_a_typed_row_is_answered(browser: Browser, client: Client, width: int, scheme: str) -> None:
    show(browser, client, width, scheme)
    browser.wait("document.querySelectorAll('#fields [data-name]').length === 3")
    browser.wait("document.querySelectorAll('#audit li').length === 2")
    browser.run("document.querySelector('[data-name=\"petal length\"]').value = '2'")
    browser.run("document.querySelector('#pane-row button').click()")
    browser.wait("!document.getElementById('result').hidden")
    row = {"petal length": 2, "petal width": float(browser.run(TYPED)), "colour": "blue"}
    answer = client.post("/predict", [row]).json["predictions"][0]
    assert browser.text(".label") == answer["label"]
    assert answer["task"] in browser.text(".pills")
    assert ("unlike" in browser.text(".pills")) == (not answer["known"])
    assert browser.text("#tasks tr th").strip() == NASTY  # as text, whatever is in it
    assert browser.run("return document.querySelectorAll('#main script, #main b').length") == 0
    assert browser.run("return [innerWidth, document.documentElement.scrollWidth]") == [width, width]
    console, requests = browser.logs()
    assert console == []
    own = f"http://127.0.0.1:{client.port}/"
    assert [url for url in requests if not url.startswith((own, "data:", "blob:", "about:"))] == []


TYPED = "return document.querySelector('[data-name=\"petal width\"]').value"


def test_a_dropped_table_and_what_is_wrong_with_one(browser: Browser, client: Client, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By

    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("petal length,petal width,colour\n2,1,red\n9.9,8,white\n4,2,green\n")
    bad.write_text("petal length,petal width\n2,1\n")
    show(browser, client)
    browser.wait("document.querySelectorAll('#fields [data-name]').length === 3")
    browser.driver.find_element(By.ID, "file").send_keys(str(good))
    browser.wait("document.querySelectorAll('#rows tbody tr').length === 3")
    expected = client.post("/predict", good.read_bytes(), "text/csv").json["predictions"]
    labels = browser.run("return [...document.querySelectorAll('#rows tbody th')].map(cell => cell.textContent)")
    assert labels == [row["label"] for row in expected]
    assert "green" in browser.text("#warnings")
    browser.run("document.querySelectorAll('#rows tbody tr')[1].click()")
    assert browser.text(".label") == expected[1]["label"]
    browser.driver.find_element(By.ID, "file").send_keys(str(bad))
    browser.wait("!document.getElementById('error').hidden")
    assert "colour" in browser.text("#error")


def test_a_drawing_is_answered(browser: Browser, serving: Callable[..., Any], image_model: Path) -> None:
    with serving(image_model, pixel_max=1.0) as client:
        show(browser, client, PHONE)
        browser.wait("!document.getElementById('pane-draw').hidden")
        browser.run(DRAW, [[0.2, 0.2], [0.8, 0.2], [0.8, 0.4], [0.2, 0.4]])
        browser.wait("!document.getElementById('result').hidden")
        seen = browser.run(
            "const c = document.getElementById('seen'); return [c.width, c.height, "
            "...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
        )
        pixels = np.array(seen[2:]).reshape(seen[1], seen[0], 4)[:, :, 0] / 255
        answer = client.post("/predict", [pixels.reshape(-1).tolist()]).json["predictions"][0]
        assert seen[:2] == [8, 8]
        assert 0.1 < pixels.mean() < 0.9
        assert browser.text(".label") == str(answer["label"])
        assert browser.run("return [innerWidth, document.documentElement.scrollWidth]") == [PHONE, PHONE]
        assert browser.logs()[0] == []


DRAW = """
const canvas = document.getElementById('canvas'), box = canvas.getBoundingClientRect();
canvas.setPointerCapture = () => {};
const at = (kind, [x, y]) => canvas.dispatchEvent(new PointerEvent(
  kind, {clientX: box.left + x * box.width, clientY: box.top + y * box.height, pointerId: 1}));
at('pointerdown', arguments[0][0]);
arguments[0].slice(1).forEach(point => at('pointermove', point));
at('pointerup', arguments[0].at(-1));
"""


def test_a_token_is_asked_for(browser: Browser, serving: Callable[..., Any], table_model: Path) -> None:
    with serving(table_model, token="abcdefghijklmnop") as client:
        show(browser, client)
        browser.wait("!document.getElementById('token').hidden")
        browser.run("document.getElementById('token-value').value = 'abcdefghijklmnop'")
        browser.run("document.querySelector('#token button').click()")
        browser.wait("!document.getElementById('main').hidden")
        assert browser.text("#name") == "flowers"
