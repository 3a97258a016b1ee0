"""Where tensors live: the processor, or a GPU that is there."""

import torch

from metareplay.errors import ConfigError


def device_named(name: str) -> torch.device:
    """The device with that name; one that this machine lacks is refused."""
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"device={name}: PyTorch {torch.__version__} finds no CUDA GPU here; choose cpu, or install PyTorch for CUDA"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device={name}: this machine has {torch.cuda.device_count()} CUDA GPUs, counted from 0; choose one of them"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"device={name}: PyTorch finds no Apple GPU here; choose cpu")
    return device
