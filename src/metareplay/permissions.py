"""Which code of the user's own may be imported: what the user named, never what a file names."""

import re

_permitted: set[str] = set()


def permit(name: str) -> None:
    """The user named this ``module:function``, perhaps as a backbone: on the command line, or in Python."""
    _permitted.add(name)
    if (backbone := re.fullmatch(r"(?:features|adapters):(.+?)(?:\+mlp(?:-\d+)*)?", name)) is not None:
        _permitted.add(backbone[1])


def permitted() -> list[str]:
    """All that the user named, for processes that work on this one's behalf."""
    return sorted(_permitted)


def is_permitted(name: str) -> bool:
    """Whether the user named it in this process."""
    return name in _permitted
