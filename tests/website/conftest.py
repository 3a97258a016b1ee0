"""The site, built once, and a browser that opens it."""

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from ..chromium import DESKTOP, Browser

ROOT = Path(__file__).parents[2]


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


class Visit:
    """Pages of the site in a browser, from the file system."""

    def __init__(self, browser: Browser, site: Path) -> None:
        self.browser, self.site = browser, site
        self.driver, self.run, self.wait = browser.driver, browser.run, browser.wait

    def open(self, page: str, *, width: int = DESKTOP, scheme: str = "light") -> None:
        """Open a page at this width, as on a phone if it is narrow, in the system's scheme."""
        self.browser.open((self.site / page).as_uri(), width=width, scheme=scheme)

    def complaints(self) -> list[Any]:
        """Console messages, and requests that left the site's folder, since the page was opened."""
        console, urls = self.browser.logs()
        own = (self.site.as_uri(), "data:", "about:", "blob:")
        return [*console, *(url for url in urls if not url.startswith(own))]


@pytest.fixture
def visit(site: Path, browser: Browser) -> Visit:
    return Visit(browser, site)
