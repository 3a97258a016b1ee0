"""How pages of the reference are worded."""

from website.docstrings import with_fenced_sessions
from website.reference.errors import raised
from website.reference.text import from_docstring, slug, table


def test_sessions_become_code() -> None:
    text = "Learns.\n\n>>> a = f(1)\n>>> a.b()  # doctest: +SKIP\n\nMore."
    assert with_fenced_sessions(text) == "Learns.\n\n\n```python\na = f(1)\na.b()\n```\n\nMore."


def test_sentences_are_found_with_gaps() -> None:
    source = """
raise DataError(f"{path} cannot be read: {error}; mend the file")
raise DataError(words + " is not a good name")
"""
    assert [*raised(source)] == [
        ("DataError", "… cannot be read: …; mend the file"),
        ("DataError", "… is not a good name"),
    ]


def test_small_pieces() -> None:
    assert table(("a", "b"), [("x|y", "z\n z")]) == "| a | b |\n|---|---|\n| x\\|y | z z |"
    assert slug("der++") == "der-plus-plus"
    assert from_docstring("A ``name``.") == "A `name`."
