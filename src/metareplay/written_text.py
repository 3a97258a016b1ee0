"""Texts as inputs: the bytes of their UTF-8, which an encoder of texts turns back into what was written.

Inputs are arrays of numbers everywhere in the package, so that texts are split, checked, fingerprinted, cached and
served like any other inputs.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from metareplay.errors import DataError

BYTES = 1000
"""Of a text, unless a setting says otherwise: what is beyond is cut off."""


def as_bytes(texts: Sequence[str | None], length: int = BYTES) -> np.ndarray:
    """Texts as inputs (N, length), float32: one byte each, zeros behind the end; None is an empty text."""
    x = np.zeros((len(texts), length), dtype=np.float32)
    for row, text in enumerate(texts):
        content = (text or "").replace("\0", " ").encode("utf-8", "replace")[:length]
        content = content.decode("utf-8", "ignore").encode()  # no half character at the end
        x[row, : len(content)] = np.frombuffer(content, dtype=np.uint8)
    return x


def as_texts(x: Tensor) -> list[str]:
    """The texts in inputs (N, length); refused if they are something else."""
    whole = x.round()
    if x.ndim != 2 or bool(((whole - x).abs() > 0.1).any()) or float(whole.min()) < 0 or float(whole.max()) > 255:
        raise DataError(
            f"the inputs, of shape {tuple(x.shape[1:])}, are not texts, which is what this encoder reads; give a list "
            "of texts, or name the column that holds them with --text"
        )
    return [row[row > 0].tobytes().decode("utf-8", "replace") for row in whole.to(torch.uint8).numpy()]
