"""Where tensors live: the CPU, or an available GPU."""

import torch

from metareplay.errors import ConfigError


def device_named(name: str) -> torch.device:
    """The device with this name; a device that this machine does not have is refused."""
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"device={name}: PyTorch {torch.__version__} finds no CUDA GPU; choose cpu, or install PyTorch for CUDA"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device={name}: this machine has {torch.cuda.device_count()} CUDA GPUs, counted from 0; choose one of them"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"device={name}: PyTorch finds no Apple GPU; choose cpu")
    return device
