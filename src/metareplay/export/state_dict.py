"""One task's mean network as a safetensors file that plain PyTorch can load."""

from safetensors.torch import save

from metareplay.export.facts import as_text, facts_of
from metareplay.export.modules import Learned, TaskNetwork

FACTS = "metareplay"
"""The one key of the metadata: several would have no fixed order."""


def state_dict_content(learned: Learned, task: int) -> bytes:
    """The state dict of ``TaskNetwork``: weights under ``network.``, scaling of inputs under ``inputs.``."""
    state = TaskNetwork(learned, task).state_dict()
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    return save(tensors, {FACTS: as_text(facts_of(learned, task))})
