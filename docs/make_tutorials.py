"""Execute the tutorials, and write what they print and draw into their pages.

    python docs/make_tutorials.py                     # all of them; `make tutorials` does the same
    python docs/make_tutorials.py digits streams      # some

A tutorial is a page in docs/tutorials. Its blocks are executed in order in an empty folder: ```python in one namespace,
```bash line by line (lines that call `metareplay`, and no others). Comments that a reader does not see steer this:

    <!-- no-run -->              the next block is only shown
    <!-- fails -->               a command of the next block is expected to fail
    <!-- quick: A -> B; ... -->  in the tests the next block has B in place of A: fewer steps, fewer rows
    <!-- lines: 3-9, 14 -->      only these lines of the output are shown
    <!-- paths -->               absolute paths stay absolute in the output of the next block, below /home/me

A ```text block right after a block is its output. A picture that the page shows, images/NAME, is the file NAME that the
blocks wrote.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("MPLBACKEND", "Agg")
TUTORIALS = Path(__file__).parent / "tutorials"
IMAGES = TUTORIALS / "images"
COLUMNS = 100
HOME = "/home/me"
"""Stands for the folder of an execution where absolute paths are shown."""
STEP = re.compile(
    r"(?P<before>(?:^<!-- [^\n]* -->\n)*)"
    r"^```(?P<language>python|bash)\n(?P<code>.*?)^```$\n"
    r"(?:\n(?:<!-- lines: (?P<lines>[\d, -]+) -->\n)?```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
PICTURE = re.compile(r"images/([\w.-]+\.(?:svg|png))")
NOISE = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
    (re.compile(r"PYTHONPATH=\S+ "), ""),
    (re.compile(r"\b\d+(\.\d+)? (s|min)\b"), r"… \2"),
    (re.compile(r"(?<!\d)20\d\d-\d\d-\d\d(?!\d)"), "2026-01-31"),
    (re.compile(r"(?<=2026-01-31[ T])\d\d:\d\d(:\d\d)?"), "12:00"),
)
"""Colours, spaces at line ends, the place of the package, durations and times: what differs between executions."""


_AS_IS: Any = {"drop_whitespace": True, "replace_whitespace": False, "expand_tabs": False, "break_on_hyphens": False}


class Step(NamedTuple):
    """A block of a page, and what is shown of its output."""

    language: str
    code: str
    comments: tuple[str, ...]
    lines: str | None
    output: str | None
    place: tuple[int, int]
    """Where the output stands in the page."""

    @property
    def run(self) -> bool:
        return "no-run" not in self.comments

    @property
    def fails(self) -> bool:
        return "fails" in self.comments

    @property
    def paths(self) -> bool:
        return "paths" in self.comments

    def code_for(self, *, quick: bool) -> str:
        """The code; in small, if it is `quick`."""
        code = self.code
        for comment in self.comments:
            if quick and comment.startswith("quick:"):
                for change in comment.removeprefix("quick:").split(";"):
                    old, new = (part.strip() for part in change.split("->"))
                    if old not in code:
                        raise ValueError(f"<!-- {comment} -->: {old!r} is not in the block")
                    code = code.replace(old, new)
        return code

    def shown(self, printed: str) -> str:
        """The part of the output that the page shows; dots stand for what is left out."""
        if self.lines is None:
            return printed
        lines, chosen, last = printed.splitlines(), [], 0
        for piece in self.lines.split(","):
            first, _, end = piece.strip().partition("-")
            start, stop = int(first), min(int(end or first), len(lines))
            chosen += (["..."] if start > last + 1 else []) + lines[start - 1 : stop]
            last = stop
        return "\n".join(chosen + (["..."] if last < len(lines) else [])) + "\n"


def steps_of(text: str) -> list[Step]:
    """The blocks of a page in order."""
    found = []
    for match in STEP.finditer(text):
        comments = tuple(re.findall(r"<!-- (.*?) -->", match["before"]))
        output = match["output"]
        place = match.span("output") if output is not None else (match.end(), match.end())
        found.append(Step(match["language"], match["code"], comments, match["lines"], output, place))
    return found


def pictures_of(text: str) -> list[str]:
    """The names of the pictures that a page shows."""
    return list(dict.fromkeys(PICTURE.findall(text)))


def cleaned(printed: str, folder: Path, *, wrap: bool = True, paths: bool = False) -> str:
    """Output without what differs from one execution or machine to the next, wrapped as a terminal would do."""
    printed = printed.replace(sys.executable, "python")
    if paths:
        printed = printed.replace(str(folder), HOME)
    else:
        printed = printed.replace(f"{folder}{os.sep}", "").replace(str(folder), ".")
    for pattern, instead in NOISE:
        printed = pattern.sub(instead, printed)
    lines = printed.strip("\n").splitlines()
    if wrap:
        lines = [piece for line in lines for piece in _wrapped(line)]
    return "\n".join(lines) + "\n"


def _wrapped(line: str) -> list[str]:
    """A line of text in as many as it needs; rows of tables are left whole."""
    row = re.search(r"\S {3,}\S|──", line)
    return [line] if row else textwrap.wrap(line, COLUMNS, **_AS_IS) or [""]


def call(line: str, *, fails: bool = False) -> None:
    """A command of `metareplay`, in this process."""
    from metareplay.cli.main import main

    words = shlex.split(line, comments=True)
    if not words:
        return
    if words[0] != "metareplay":
        raise ValueError(f"{line!r}: only commands of metareplay are executed; put <!-- no-run --> before the block")
    before = sys.argv, {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    sys.argv = words
    try:
        main()
        code: Any = 0
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv = before[0]
        for number, handler in before[1].items():
            signal.signal(number, handler)
    if bool(code) and not fails:
        raise RuntimeError(f"{line} ended with code {code}")


def execute(text: str, folder: Path, *, quick: bool = False) -> Iterator[tuple[Step, str]]:
    """Execute a page in a folder, which is the current one meanwhile: each step with what it printed."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder), warnings.catch_warnings():
        for step in steps_of(text):
            if not step.run:
                continue
            printed, code = io.StringIO(), step.code_for(quick=quick)
            try:
                with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                    if step.language == "python":
                        exec(compile(code, "tutorial", "exec"), namespace)
                    else:
                        for line in code.replace("\\\n", " ").splitlines():
                            call(line, fails=step.fails)
            except Exception as problem:
                raise RuntimeError(f"{code}\n{printed.getvalue()[-2000:]}\n{problem}") from problem
            yield step, cleaned(printed.getvalue(), folder, wrap=step.language == "bash", paths=step.paths)


def written(folder: Path, name: str) -> Path | None:
    """The picture of that name that an execution left."""
    return next(iter(sorted(folder.rglob(name))), None)


def shrink(picture: Path, widest: int = 1500) -> None:
    """A PNG as wide as a page needs it, with a palette of its own."""
    from PIL import Image

    with Image.open(picture) as opened:
        image = opened.convert("RGB")
    if image.width > widest:
        image = image.resize((widest, round(image.height * widest / image.width)), Image.Resampling.LANCZOS)
    # the most frequent colours, then moved to where they err least: small symbols keep theirs beside large areas
    image.quantize(256, kmeans=2, dither=Image.Dither.NONE).save(picture, optimize=True)


def rewrite(page: Path) -> None:
    """Execute a page with its full settings; its outputs and pictures are replaced."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        new, end = "", 0
        for step, printed in execute(text, folder):
            if step.output is not None:
                new += text[end : step.place[0]] + step.shown(printed)
                end = step.place[1]
        for picture in pictures_of(text):
            source = written(folder, picture)
            if source is None:
                raise SystemExit(f"{page.name} shows images/{picture}, which none of its blocks wrote")
            shutil.copyfile(source, IMAGES / picture)
            if source.suffix == ".png":
                shrink(IMAGES / picture)
    page.write_text(new + text[end:], encoding="utf-8")


def main(names: list[str]) -> None:
    """Every tutorial, or those with these names."""
    os.environ.update(COLUMNS=str(COLUMNS), NO_COLOR="1", OMP_NUM_THREADS="1")
    IMAGES.mkdir(exist_ok=True)
    for page in [TUTORIALS / f"{name}.md" for name in names] or sorted(TUTORIALS.glob("*.md")):
        print(page.relative_to(TUTORIALS.parent), flush=True)
        rewrite(page)


if __name__ == "__main__":
    main(sys.argv[1:])
