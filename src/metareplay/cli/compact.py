"""``metareplay compact``: earlier versions of a model are removed."""

from metareplay.cli.data_options import Model
from metareplay.cli.trust import TrustNetwork

HELP = """Delete all earlier versions of a model, including those with removed tasks. Nothing can be undone afterwards.

[bold]Example[/]

  metareplay compact shop
"""


def compact(model: Model, trust_network: TrustNetwork = None) -> None:
    """Make the folder smaller."""
    from metareplay.cli.data_options import tell
    from metareplay.living.changes import compact_model

    tell(compact_model(model))
