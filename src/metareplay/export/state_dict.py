"""One task's mean network as a safetensors file that plain PyTorch can load."""

from safetensors.torch import save

from metareplay.export.facts import facts_of
from metareplay.export.modules import Learned, TaskNetwork


def state_dict_content(learned: Learned, task: int) -> bytes:
    """The state dict of ``TaskNetwork``: weights under ``network.``, scaling of inputs under ``inputs.``."""
    state = TaskNetwork(learned, task).state_dict()
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    return save(tensors, {"format": "pt", **facts_of(learned, task)})
