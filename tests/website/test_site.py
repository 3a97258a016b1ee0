"""The site builds strictly: a broken link, an unknown anchor or a page that the navigation forgot fails."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    return folder


def test_it_has_pages(site: Path) -> None:
    for page in ("index.html", "results.html", "repository/CHANGELOG.html", "repository/SECURITY.html"):
        assert (site / page).is_file()
