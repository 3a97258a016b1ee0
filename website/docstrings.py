"""Docstrings as Markdown: interactive sessions become blocks of code."""

import re
from typing import Any

from griffe import Extension, Object

SESSION = re.compile(r"(?:^>>> .*\n?(?:^\.\.\. .*\n?)*)+", re.MULTILINE)
PROMPT = re.compile(r"^(?:>>>|\.\.\.) ?", re.MULTILINE)


def with_fenced_sessions(text: str) -> str:
    """Lines after >>> as code, without what is said to doctest."""

    def fenced(session: re.Match[str]) -> str:
        code = re.sub(r"\s*# doctest:.*", "", PROMPT.sub("", session[0]).rstrip())
        return f"\n```python\n{code}\n```\n"

    return SESSION.sub(fenced, text)


class Sessions(Extension):
    """For mkdocstrings."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Every class and function is shown to this when it has been read."""
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = with_fenced_sessions(obj.docstring.value)
