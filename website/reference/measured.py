"""Measured figures of a method, if the repository has records of them."""

from pydantic import BaseModel


def figures_of(method: str) -> str:
    """A table of what was measured with a method; empty if nothing was."""
    return ""


def record_model() -> type[BaseModel] | None:
    """The class of a record of figures."""
    return None
