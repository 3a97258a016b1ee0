"""Text from data, files and paths on a terminal: shown as it is, never as markup or control codes."""

from typing import Any

from rich.markup import escape


def shown(value: Any) -> str:
    """Text for anything that reads Rich's markup: brackets stay brackets, control characters are written out."""
    text = str(value)
    if not text.isprintable():
        text = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
    return escape(text)
