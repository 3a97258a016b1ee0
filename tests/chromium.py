"""Pages in a real browser: headless Chromium, driven by Selenium.

Without a browser the tests that need one are skipped, or fail if METAREPLAY_BROWSER=required (as in continuous
integration).
"""

import json
import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-quic"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)
DESKTOP, PHONE = 1280, 390


def no_browser(environment: Mapping[str, str] = os.environ) -> NoReturn:
    """Skip and say so, or fail where a browser is required."""
    message = (
        "no Chromium with chromedriver and Selenium was found; `make browser` installs the first two, pip the last"
    )
    if environment.get("METAREPLAY_BROWSER") == "required":
        pytest.fail(f"METAREPLAY_BROWSER=required, but {message}")
    pytest.skip(message)


class Browser:
    """A headless Chromium that opens pages and remembers what they fetched and complained about."""

    def __init__(self, profile: Path) -> None:
        binary, driver = next(filter(None, map(shutil.which, BROWSERS)), None), shutil.which("chromedriver")
        if binary is None or driver is None or find_spec("selenium") is None:
            no_browser()
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = binary
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))

    def open(self, address: str, *, width: int = DESKTOP, scheme: str = "light") -> None:
        """Load a page at this width, as on a phone if it is narrow; what was logged before is forgotten."""
        self.leave()
        self.logs()
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get(address)

    def leave(self) -> None:
        """Load nothing instead: a page that is left open goes on drawing, and takes time from later tests."""
        self.driver.get("about:blank")

    def run(self, script: str, *arguments: Any) -> Any:
        """What some JavaScript returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str) -> None:
        """Until a JavaScript expression is true."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 60, 0.05).until(lambda _: self.run(f"return Boolean({condition})"), condition)

    def text(self, selector: str) -> str:
        """Of the first element that the selector finds."""
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def logs(self) -> tuple[list[Any], list[str]]:
        """Console messages since the last call, and the requested addresses."""
        console = self.driver.get_log("browser")
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        return console, [
            event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"
        ]
