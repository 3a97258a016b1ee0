"""A damaged header of a checkpoint is noticed like damaged numbers."""

from pathlib import Path

import pytest
import torch

from metareplay.errors import CheckpointError
from metareplay.training.checkpoint import read_tensors, write_tensors

FACTS = {"matrix": [[99.5], [98.25, 97.0]], "serial": 3, "training": True}


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    write_tensors(path, {"weights": torch.arange(4.0)}, FACTS)
    content = path.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1
        path.write_bytes(bytes(damaged))
        with pytest.raises(CheckpointError):
            read_tensors(path)
