"""The drawings in docs/ are those that the code draws, and name every layer."""

from pathlib import Path

from website.drawings.__main__ import DRAWINGS, FOLDER
from website.drawings.canvas import STYLE
from website.drawings.systems import LAYERS

ROOT = Path(__file__).parents[2]


def test_the_drawings_are_up_to_date() -> None:
    old = [name for name, draw in DRAWINGS.items() if (FOLDER / f"{name}.svg").read_text() != draw().svg()]
    assert old == [], "run `python -m website.drawings`"


def test_every_folder_is_a_layer() -> None:
    folders = {path.name for path in (ROOT / "src" / "metareplay").iterdir() if (path / "__init__.py").is_file()}
    drawn = {name for _, names in LAYERS for name in names.split(", ")}
    assert folders <= drawn


def test_the_page_has_the_colours_of_the_drawings() -> None:
    css = (ROOT / "website" / "theme" / "stylesheets" / "site.css").read_text(encoding="utf-8")
    colours = [pair.split(":") for line in STYLE.splitlines() if "--" in line for pair in
               line[line.index("{--") + 1 :].rstrip("}").split(";")]  # fmt: skip
    assert len(colours) == 14
    assert all(f"{name}: {value};" in css for name, value in colours)
