"""The option that lets a stored model use the user's own network."""

from typing import Annotated

import typer

from metareplay.permissions import permit


def _permit(names: list[str] | None) -> list[str] | None:
    for name in names or []:
        permit(name)
    return names


TrustNetwork = Annotated[
    list[str] | None,
    typer.Option(
        "--trust-network",
        metavar="MODULE:FUNCTION",
        callback=_permit,
        help="Code that a stored model or configuration may import as its network. Without it, no such code is run.",
    ),
]
"""A parameter of this type is all that a command needs."""
