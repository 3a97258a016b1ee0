"""``metareplay undo``: the last change of a model is taken back."""

from metareplay.cli.data_options import Model
from metareplay.cli.trust import TrustNetwork

HELP = """Take the last change of a model back; repeated, the one before. Training that was interrupted is discarded.

Not possible for what happened before the last metareplay compact.

[bold]Example[/]

  metareplay undo shop
"""


def undo(model: Model, trust_network: TrustNetwork = None) -> None:
    """Undo one change."""
    from metareplay.cli.data_options import tell
    from metareplay.living.changes import undo as take_back

    tell(take_back(model))
