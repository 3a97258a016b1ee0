"""Draw the pictures of docs/gallery.md, light and dark, by executing the commands of that page.

python docs/make_gallery.py            # into docs/images/gallery; runs that are there already, in runs/, are kept
"""

import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from make_tutorials import call, shrink, steps_of

PAGE = Path(__file__).parent / "gallery.md"
PICTURES = Path(__file__).parent / "images" / "gallery"


def commands(text: str) -> list[list[str]]:
    """The command lines of the page, as words."""
    return [shlex.split(line) for step in steps_of(text) for line in step.code.replace("\\\n", " ").splitlines()]


def main() -> None:
    """Make the runs that are missing, then each picture twice."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for words in commands(PAGE.read_text(encoding="utf-8")):
        target = Path(words[-1])
        if words[1] == "run":
            if not (target / "results.json").is_file():
                call(shlex.join([*words, "--resume"] if target.exists() else words))
            continue
        for theme in ("light", "dark"):
            picture = PICTURES / f"{target.stem}-{theme}{target.suffix}"
            call(shlex.join([*words[:-1], str(picture), "--theme", theme]))
            shrink(picture)


if __name__ == "__main__":
    main()
