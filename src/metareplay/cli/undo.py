"""``metareplay undo``: revert the last change of a model."""

from metareplay.cli.data_options import Model
from metareplay.cli.trust import TrustNetwork

HELP = """Revert the last change of a model; run again, it reverts the one before. Interrupted training is discarded.

Not possible for what happened before the last metareplay compact.

[bold]Example[/]

  metareplay undo shop
"""


def undo(model: Model, trust_network: TrustNetwork = None) -> None:
    """Undo one change."""
    from metareplay.cli.data_options import tell
    from metareplay.living.changes import undo as take_back

    tell(take_back(model))
