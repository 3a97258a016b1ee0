"""Text from data, files and paths on a terminal: shown as it is, never as markup or control codes."""

from typing import Any

from rich.markup import escape

LONGEST = 2000
"""Characters of a message: a file may hold a name of a million."""


def shortened(text: str) -> str:
    """Text with its middle left out if it is very long."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 500]} ... {text[-400:]}"


def shown(value: Any) -> str:
    """Text for anything that reads Rich's markup: brackets stay brackets, control characters are written out."""
    text = str(value)
    if not text.isprintable():
        text = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
    return escape(text)
