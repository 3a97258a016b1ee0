"""Read labelled images from parquet files in the layout of a Hugging Face dataset repository."""

import contextlib
import glob
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metareplay.errors import DataError

INSTALL_HINT = (
    'reading this data set needs the Hugging Face libraries; install them with: pip install "metareplay[data]"'
)


def read_split(files: Sequence[Path], image_column: str, label_column: str, mode: str) -> tuple[Tensor, Tensor]:
    """All images (N, C, H, W), uint8, in this Pillow mode ("L" is grey, "RGB" colour), and labels (N,), int64."""
    try:
        import datasets
        import pyarrow
        import pyarrow.compute
    except ImportError as error:
        raise DataError(INSTALL_HINT) from error
    where = ", ".join(str(file) for file in files)
    unreadable = (
        OSError,
        ValueError,
        TypeError,
        SyntaxError,
        datasets.exceptions.DatasetsError,
        pyarrow.ArrowException,
    )
    try:
        # The folder of the data may be read-only and the user's home small: the library's own copy is temporary.
        with quiet(), tempfile.TemporaryDirectory(prefix="metareplay-", ignore_cleanup_errors=True) as scratch:
            # Loaded by folder, not as "parquet": that would report its use over the network.
            folder, names = str(files[0].parent), [glob.escape(str(file)) for file in files]
            table = datasets.load_dataset(
                folder, data_files=names, split="train", cache_dir=scratch, keep_in_memory=True
            )
            _require_columns(table.column_names, (image_column, label_column), where)
            encoded = table.data.column(image_column)
            if pyarrow.types.is_struct(encoded.type) and pyarrow.compute.struct_field(encoded, "bytes").null_count:
                raise DataError(f"{where} names files instead of holding its images; no file outside it is read")
            table = table.cast_column(image_column, datasets.Image(mode=mode))
            labels = torch.tensor(list(table[label_column]), dtype=torch.int64)
            batches = table.select_columns([image_column]).iter(batch_size=1000)  # faster than one row at a time
            return _stack((image for batch in batches for image in batch[image_column]), len(table), where), labels
    except unreadable as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"cannot read {where} ({reason}); the file is truncated or corrupt: copy or download it again"
        ) from error


def _require_columns(columns: Sequence[str], needed: Sequence[str], where: str) -> None:
    missing = [column for column in needed if column not in columns]
    if missing:
        raise DataError(
            f"{where} has no column {' or '.join(missing)}, only {', '.join(columns)}; is it the right data set?"
        )


def _stack(images: Iterable[Any], count: int, where: str) -> Tensor:
    """One tensor of all images; they are decoded one by one, so that only the pixels are ever held twice."""
    pixels: np.ndarray | None = None
    for index, image in enumerate(images):
        array = np.asarray(image)  # (H, W) or (H, W, C)
        if pixels is None:
            pixels = np.empty((count, *array.shape), dtype=np.uint8)
        if array.dtype != np.uint8 or array.shape != pixels.shape[1:]:
            raise DataError(
                f"{where}: image {index} has shape {array.shape} ({array.dtype}), the first {pixels.shape[1:]} (uint8)"
            )
        pixels[index] = array
    if pixels is None:
        raise DataError(f"{where} holds no images; download it again")
    stacked = torch.from_numpy(pixels)
    if stacked.ndim == 3:
        return stacked.unsqueeze(1)  # (N, H, W) -> (N, 1, H, W)
    return stacked.permute(0, 3, 1, 2).contiguous()  # (N, H, W, C) -> (N, C, H, W)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the library's progress bars and log lines: errors reach the user as one message."""
    from datasets.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
    from datasets.utils import logging as datasets_logging

    silent, verbosity = are_progress_bars_disabled(), datasets_logging.get_verbosity()
    if not silent:
        disable_progress_bars()
    datasets_logging.set_verbosity(datasets_logging.CRITICAL)
    try:
        yield
    finally:
        datasets_logging.set_verbosity(verbosity)
        if not silent:
            enable_progress_bars()
