"""The documents keep their promises: Python blocks run, command lines name commands and options that exist, so do the
files and links they name, and the reference is what the command prints.

The blocks of one document share a namespace and a temporary working folder. A block with `<!-- no-run -->` on the line
before it is only compiled.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
NO_RUN = "<!-- no-run -->"
FENCE = re.compile(r"^ {0,3}(`{3,})[ \t]*(\w*)[^\n]*\n(.*?)^ {0,3}\1[ \t]*$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    code: str
    line: int
    """Of the first line of code, counted from 1."""
    run: bool


def blocks(text: str) -> list[Block]:
    parsed = []
    for match in FENCE.finditer(text):
        before = text[: match.start()].rstrip()
        parsed.append(
            Block(match[2].lower(), match[3], text[: match.start(3)].count("\n") + 1, not before.endswith(NO_RUN))
        )
    return parsed


def command_lines(code: str) -> list[list[str]]:
    """The arguments of every call of `metareplay` in shell lines; prompts, comments and pipes are understood."""
    calls = []
    for line in code.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.strip().removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set(";&|<>()"):  # the end of one command
                while command and re.fullmatch(r"\w+=.*", command[0]):  # VARIABLE=value before it
                    command = command[1:]
                if command and Path(command[0]).name == "metareplay":
                    calls.append(command[1:])
                command = []
            else:
                command.append(word)
    return calls


def check_call(command: Any, arguments: list[str], name: str = "metareplay") -> None:
    """Raise unless the command line has such a subcommand with such options; values are not looked at."""
    context = command.context_class(command, info_name=name)
    if "--help" in arguments or "--version" in arguments:
        arguments = [word for word in arguments if word not in ("--help", "--version")]
        if not arguments:
            return
    if not hasattr(command, "commands"):
        command.make_parser(context).parse_args(list(arguments))
        return
    assert arguments, f"`{name}` needs a subcommand"
    assert arguments[0] in command.commands, (
        f"`{name} {arguments[0]}` does not exist; there are {', '.join(sorted(command.commands))}"
    )
    check_call(command.commands[arguments[0]], arguments[1:], f"{name} {arguments[0]}")


ELSEWHERE = ("docs/add_a_method.md", *(name for name in NAMES if name.startswith("docs/tutorials/")))
"""Executed by test_add_a_method.py, as a package, and by test_tutorials.py, with their commands."""


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_python_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.language in ("python", "py"):
            # errors then name the document's own line
            code = compile("\n" * (block.line - 1) + block.code, str(path), "exec")
            if block.run and str(path.relative_to(ROOT)) not in ELSEWHERE:
                exec(code, namespace)


def test_command_lines_parse() -> None:
    import typer.main

    from metareplay.cli.main import app

    command, errors, number = typer.main.get_command(app), [], 0
    for path in DOCUMENTS:
        for block in blocks(path.read_text(encoding="utf-8")):
            for call in command_lines(block.code) if block.language in ("bash", "console", "sh", "shell") else ():
                number += 1
                try:
                    check_call(command, call)
                except Exception as error:
                    errors.append(f"{path.name}, from line {block.line}: {error}")
    assert not errors, "\n".join(errors)
    assert number > 20  # the search sees them


def test_the_reference_is_what_the_command_prints() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    call = [sys.executable, "-m", "metareplay", "list", "all", "--markdown"]
    printed = subprocess.run(call, env=environment, capture_output=True, check=True).stdout.decode()
    assert printed == (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), "run `make reference`"


def missing_links(path: Path) -> list[str]:
    """Links of a page to files, or to headings of files, that are not there."""
    missing = []
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", path.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        page = path.parent / name if name else path
        text = page.read_text(encoding="utf-8") if page.suffix == ".md" and page.is_file() else ""
        titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
        if not page.exists() or (anchor and anchor not in anchors):
            missing.append(target)
    return missing


def missing_files(text: str) -> list[str]:
    """Files of the package, or of the repository, that a page names and that are not there."""
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", text))
    return sorted(name for name in named if not any((ROOT / base / name).is_file() for base in ("src/metareplay", "")))


def test_links_lead_somewhere() -> None:
    missing = {path.name: links for path in PAGES if (links := missing_links(path))}
    assert not missing


def test_named_files_exist() -> None:
    missing = {path.name: files for path in PAGES if (files := missing_files(path.read_text(encoding="utf-8")))}
    assert not missing


def test_missing_files_and_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# One two\n[b](b.md) [a](a.md#one-two) [c](#three) [d](https://example.org)")
    assert missing_links(tmp_path / "a.md") == ["b.md", "#three"]
    assert missing_files("`nets/gone.py`, `nets/mlp.py`, `tests/test_docs.py`, `plan.py`") == ["nets/gone.py"]


# The checks themselves.


EXAMPLE = """# Title

```python
x = 1
```

<!-- no-run -->
```python
y = 2
```
```bash
ls
```
````text
```python
z
```
````
"""


def test_blocks_are_found_with_their_lines() -> None:
    assert blocks(EXAMPLE) == [
        Block("python", "x = 1\n", 4, True),
        Block("python", "y = 2\n", 9, False),
        Block("bash", "ls\n", 12, True),
        Block("text", "```python\nz\n```\n", 15, True),
    ]


@pytest.mark.parametrize(
    ("code", "calls"),
    [
        ("$ metareplay run a \\\n  --seed 1  # why\nmake demo", [["run", "a", "--seed", "1"]]),
        ("cd x && .venv/bin/metareplay list methods | head", [["list", "methods"]]),
        ("A=1 metareplay report 'my run'>f\n# metareplay gone", [["report", "my run"]]),
    ],
)
def test_command_lines_are_found(code: str, calls: list[list[str]]) -> None:
    assert command_lines(code) == calls


@pytest.fixture
def example_command() -> Any:
    import typer

    app = typer.Typer()

    @app.command()
    def run(benchmark: str = "a", seed: int = 0) -> None: ...

    @app.command("list")
    def list_names(kind: str) -> None: ...

    return typer.main.get_command(app)


@pytest.mark.parametrize("line", ["run", "run --seed 3", "run --benchmark=b", "list methods", "--help", "run --help"])
def test_good_calls_pass(example_command: Any, line: str) -> None:
    check_call(example_command, line.split())


@pytest.mark.parametrize("line", ["walk", "run --sead 3", "run --seed", ""])
def test_bad_calls_fail(example_command: Any, line: str) -> None:
    with pytest.raises(Exception, match=r"does not exist|[Nn]o such option|requires an argument|needs a subcommand"):
        check_call(example_command, line.split())
