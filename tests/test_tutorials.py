"""The tutorials run: every block of every page, in small, and each picture that a page shows is made by them.

`make tutorials` executes them with the settings that the reader sees, and writes outputs and pictures into the pages.
"""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
NAMES = [page.stem for page in PAGES]
TUTORIALS = {
    "digits",
    "monthly_table",
    "photos",
    "streams",
    "serve_and_watch",
    "reproduce",
    "posterior_family",
    "cluster",
}
NEEDS = {
    "photos": ("PIL", "efficientnet_lite_pytorch"),
    "serve_and_watch": ("fastapi", "pandas"),
    "cluster": ("optuna",),
}


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """docs/make_tutorials.py."""
    path = ROOT / "docs" / "make_tutorials.py"
    spec = importlib.util.spec_from_file_location("make_tutorials", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def as_on_a_terminal(tool: ModuleType, small_maps: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands print for a terminal of a known width; what they start finds this copy of the package."""
    monkeypatch.setenv("COLUMNS", str(tool.COLUMNS))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture(autouse=True)
def no_new_parts() -> Iterator[None]:
    """What a page registers is not there for other tests of this process, nor the threads of its commands."""
    from metareplay.learner.methods import METHODS
    from metareplay.posteriors.base import FAMILIES

    before = [(registry, set(registry)) for registry in (METHODS, FAMILIES)]
    yield
    torch.set_num_threads(1)  # commands take as many as their settings say
    for registry, names in before:
        for name in set(registry) - names:
            registry.remove(name)


def without_numbers(text: str) -> str:
    return re.sub(r"[\d.,~±e+-]+", "#", re.sub(r"\s+", " ", text))


def test_all_tutorials_are_there() -> None:
    assert set(NAMES) - {"index"} == TUTORIALS


SLOWER = {"reproduce"}
"""Executed with the slow tests: the commands of the others take less time, and tests of `reproduce` remain."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOWER else ()) for name in sorted(TUTORIALS)]
)
def test_a_tutorial_runs_and_makes_its_pictures(name: str, tool: ModuleType, tmp_path: Path) -> None:
    for module in NEEDS.get(name, ()):
        pytest.importorskip(module)
    text = (ROOT / "docs" / "tutorials" / f"{name}.md").read_text(encoding="utf-8")
    for step, printed in tool.execute(text, tmp_path, quick=True):
        if step.output is not None:
            assert printed.strip()
            assert step.output.strip(), f"{step.code}: its output is not in the page; run `make tutorials`"
    pictures = tool.pictures_of(text)
    assert pictures
    for picture in pictures:
        assert tool.written(tmp_path, picture), f"no block wrote {picture}"
        assert (tool.IMAGES / picture).is_file(), "run `make tutorials`"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TUTORIALS))
def test_a_page_shows_what_its_blocks_print(name: str, tool: ModuleType, tmp_path: Path) -> None:
    """With full settings; numbers may differ on another machine, words may not."""
    text = (ROOT / "docs" / "tutorials" / f"{name}.md").read_text(encoding="utf-8")
    for step, printed in tool.execute(text, tmp_path):
        if step.output is not None:
            assert without_numbers(step.shown(printed)) == without_numbers(step.output)


def test_no_picture_is_left_over(tool: ModuleType) -> None:
    shown = {picture for page in PAGES for picture in tool.pictures_of(page.read_text(encoding="utf-8"))}
    assert {path.name for path in tool.IMAGES.iterdir()} == shown


# The tool itself.


PAGE = """
<!-- quick: 3 -> 2 -->
```python
print("a\\nb\\nc\\nd" * 3)
open("drawn.svg", "w").close()
```

<!-- lines: 2-3 -->
```text
old
```

<!-- no-run -->
```bash
curl nowhere
```

![x](images/drawn.svg)
"""


def test_steps_are_found(tool: ModuleType) -> None:
    first, second = tool.steps_of(PAGE)
    assert (first.language, first.output, first.lines, first.run) == ("python", "old\n", "2-3", True)
    assert first.code_for(quick=True).endswith('* 2)\nopen("drawn.svg", "w").close()\n')
    assert (second.run, second.output) == (False, None)
    assert tool.pictures_of(PAGE) == ["drawn.svg"]


def test_a_page_gets_what_its_blocks_print_and_draw(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "IMAGES", tmp_path)
    (tmp_path / "page.md").write_text(PAGE)
    tool.rewrite(tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == PAGE.replace("old", "...\nb\nc\n...")
    assert (tmp_path / "drawn.svg").is_file()


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("```bash\nrm -r x\n```\n", "only commands of metareplay"),
        ("```bash\nmetareplay tasks nowhere\n```\n", "ended with code 2"),
        ("<!-- quick: 7 -> 8 -->\n```python\nx = 1\n```\n", "is not in the block"),
    ],
)
def test_what_a_page_may_not_do(page: str, problem: str, tool: ModuleType, tmp_path: Path) -> None:
    with pytest.raises((RuntimeError, ValueError), match=problem):
        list(tool.execute(page, tmp_path, quick=True))


def test_times_and_folders_are_taken_out(tool: ModuleType, tmp_path: Path) -> None:
    printed = f"{tmp_path}/runs/a took 3.2 s on 2027-05-04 10:11:12 \n"
    assert tool.cleaned(printed, tmp_path) == "runs/a took … s on 2026-01-31 12:00\n"
    printed = f"cd {tmp_path}\n{sys.executable} -m metareplay {tmp_path}/runs/a\n"
    assert tool.cleaned(printed, tmp_path, paths=True) == "cd /home/me\npython -m metareplay /home/me/runs/a\n"


def test_absolute_paths_are_shown_where_a_page_says_so(tool: ModuleType, tmp_path: Path) -> None:
    block = "```python\nfrom pathlib import Path\nprint(Path('a').absolute())\n```\n"
    printed = [text for _, text in tool.execute(f"{block}\n<!-- paths -->\n{block}", tmp_path)]
    assert printed == ["a\n", "/home/me/a\n"]
