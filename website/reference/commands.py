"""A page for every command, made from what its `--help` is made of."""

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from metareplay.cli.main import app
from website.reference.text import Section, code, paragraphs, table

FOLDER = "reference/commands"
TAKES = {"str": "TEXT", "int": "NUMBER", "float": "NUMBER", "path": "PATH"}
"""What options take."""
EXAMPLE = "  "
"""Examples are indented in the texts of the commands."""


def commands() -> dict[str, Any]:
    """The commands by name, in the order of `metareplay --help`."""
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def _blocks(text: str) -> Iterator[str]:
    """The text of a command as Markdown: lines of examples become blocks of code."""
    examples: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.splitlines()
        if all(line.startswith(EXAMPLE) for line in lines):
            examples += [re.sub(r"(?<=\S) {2,}(?=\S)", "  # ", line.strip()) for line in lines]
            continue
        if examples:
            yield _shell(examples)
            examples = []
        yield re.sub(r"\[bold\](.*?)\[/(?:bold)?\]", r"**\1**", " ".join(map(str.strip, lines)))
    if examples:
        yield _shell(examples)


def _shell(lines: list[str]) -> str:
    return "\n".join(["```bash", *lines, "```"])


def _row(parameter: Any, context: Any) -> tuple[str, str]:
    """The flags with what they take, and the meaning, as `--help` has them."""
    flags, meaning = parameter.get_help_record(context)
    takes = TAKES.get(found[1]) if (found := re.search(r"<(?:list\[)?(\w+)", flags)) else None
    words = [code(word) if word != "/" else word for word in re.sub(r" *<.*>", "", flags).split()]
    limits = re.sub(r"x>=(\S+)", r"at least \1", re.sub(r"\s*\[((?:default|required|x)[^\]]*)\]$", r" (\1)", meaning))
    return " ".join([*words, *([takes] if takes else [])]), limits


def _page(name: str, command: Any) -> str:
    context = command.context_class(command, info_name=f"metareplay {name}")
    usage = command.get_usage(context).removeprefix("Usage: ")
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.params:
        kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
        panels.setdefault(getattr(parameter, "rich_help_panel", None) or kind, []).append(_row(parameter, context))
    blocks = [f"# metareplay {name}", *_blocks(command.help or ""), "## Usage", f"```text\n{usage}\n```"]
    for title, rows in panels.items():
        blocks += [f"## {title}", table(("argument" if title == "Arguments" else "option", "meaning"), rows)]
    return paragraphs(*blocks)


def pages() -> dict[str, str]:
    """All of them, and the page that leads to them."""
    rows = []
    for name, command in commands().items():
        about = (command.help or "").strip().split("\n\n")[0]
        rows.append((f"[{code(name)}]({name}.md)", re.sub(r"\[/?\w*\]", "", about)))
    index = paragraphs(
        "# Commands",
        "`metareplay COMMAND --help` prints the same. A command that ends by a user's mistake prints one sentence and "
        "exits with code 2 ([errors](../errors.md)); `metareplay --version` prints the version.",
        table(("command", "what it does"), rows),
    )
    return {f"{FOLDER}/index.md": index} | {
        f"{FOLDER}/{name}.md": _page(name, command) for name, command in commands().items()
    }


def section() -> Section:
    """In the navigation."""
    return Section("Commands", [f"{FOLDER}/index.md", *(f"{FOLDER}/{name}.md" for name in commands())])
