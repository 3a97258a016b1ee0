"""The site, built once, and a browser that opens it."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-quic"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)


def build_site(folder: Path, *, api: bool) -> Path:
    """The whole site, strictly; the Python API takes as long as everything else."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        patch.setenv("METAREPLAY_SITE_API", "true" if api else "false")
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    return folder


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site without the Python API, built by the first worker that needs it."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    base = tmp_path_factory.getbasetemp() if alone else tmp_path_factory.getbasetemp().parent  # of all workers
    folder = base / "website"
    with open(base / "website.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return folder if (folder / "sitemap.xml").exists() else build_site(folder, api=False)


@pytest.fixture
def whole_site(tmp_path: Path) -> Path:
    """With the Python API."""
    return build_site(tmp_path / "site", api=True)


class Browser:
    """A headless Chromium that opens pages of the site from the file system."""

    def __init__(self, binary: str, driver: str, profile: Path, site: Path) -> None:
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = binary
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        self.site = site

    def open(self, page: str, *, width: int = 1280, scheme: str = "light") -> None:
        """Open a page at this width, as on a phone if it is narrow, in the system's scheme."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get((self.site / page).as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str) -> None:
        """Until a JavaScript expression is true."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 60, 0.1).until(lambda _: self.run(f"return {condition}"), message=condition)

    def complaints(self) -> list[Any]:
        """Console messages, and requests that left the site's folder, since the last call."""
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        urls = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
        own = (self.site.as_uri(), "data:", "about:", "blob:")
        return [*self.driver.get_log("browser"), *(url for url in urls if not url.startswith(own))]


@pytest.fixture(scope="session")
def browser(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None or find_spec("selenium") is None:
        if os.environ.get("METAREPLAY_BROWSER") == "required":
            pytest.fail("METAREPLAY_BROWSER=required, but no Chromium with chromedriver and Selenium was found")
        pytest.skip("no Chromium with chromedriver and Selenium was found; `make browser` installs it")
    opened = Browser(binary, driver, tmp_path_factory.mktemp("profile"), site)
    opened.driver.get("about:blank")
    opened.complaints()  # of the browser's own first page
    yield opened
    opened.driver.quit()
