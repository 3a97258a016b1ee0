"""Measured figures of a method, if the repository has records of them."""

from pydantic import BaseModel


def figures_of(method: str, root: str) -> str:
    """A table of what was measured with a method; ``root`` leads from its page to the first folder of the site."""
    return ""


def record_model() -> "type[BaseModel] | None":
    """The class of a record of figures."""
    return None
