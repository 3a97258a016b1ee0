"""Errors and warnings, with every sentence that the package can answer a mistake with."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import metareplay
from metareplay import errors
from website.reference.text import code, from_docstring, paragraphs

PACKAGE = Path(metareplay.__file__).parent
GAP = "…"
"""What differs from case to case."""
SHORTEST = 4
"""Words of a sentence that is worth listing."""


def classes() -> list[type[Exception]]:
    """Errors and warnings in the order in which they are defined."""
    found = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, Exception)]
    return [kind for kind in found if kind.__module__ == errors.__name__]


def wording(node: ast.expr) -> str:
    """The text of a string in the source, with gaps for what is filled in; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(wording(part) if isinstance(part, ast.Constant) else GAP for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (wording(node.left) or GAP) + (wording(node.right) or GAP)
    return ""


def raised(source: str) -> Iterator[tuple[str, str]]:
    """The class and the words of every exception that a file raises."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            words = " ".join(wording(node.exc.args[0]).split()) if node.exc.args else ""
            if len(words.replace(GAP, "").split()) >= SHORTEST:
                yield node.exc.func.id, words


def sentences() -> dict[str, dict[str, list[str]]]:
    """All sentences by class and by folder of the package."""
    found: dict[str, dict[str, list[str]]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        folder = place.parts[0].removesuffix(".py")
        for kind, words in raised(path.read_text(encoding="utf-8")):
            known = found.setdefault(kind, {}).setdefault(folder, [])
            if words not in known:
                known.append(words)
    return found


def _literal(words: str) -> str:
    """As text that Markdown leaves alone."""
    for sign in "\\`*_[]<>|":
        words = words.replace(sign, f"\\{sign}" if sign not in "<>" else {"<": "&lt;", ">": "&gt;"}[sign])
    return words


def page() -> str:
    """The classes, then the sentences."""
    blocks = [
        "# Errors",
        "An error that a user can cause is one sentence that says what was wrong, what is allowed and what to do. In "
        "Python it is an exception of `metareplay.errors`; the command line prints the sentence and exits with code 2. "
        "Anything else is a bug: exit code 1, with the traceback in a file that the message names. Models and files "
        f"are left unchanged. Below each class are all its messages, with {GAP} for what differs from case to case.",
    ]
    found = sentences()
    for kind in classes():
        bases = ", ".join(code(base.__name__) for base in kind.__bases__)
        blocks += [f"## {kind.__name__}", f"{from_docstring(kind.__doc__)} A kind of {bases}."]
        for folder, words in found.get(kind.__name__, {}).items():
            blocks += [f"### {kind.__name__}: {folder}", "\n".join(f"- {_literal(text)}" for text in words)]
    return paragraphs(*blocks)
