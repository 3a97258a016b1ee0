"""Image files as pixels: all of one size, grey if all are grey, else colour."""

import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from metareplay.data.readers.parquet import INSTALL_HINT
from metareplay.errors import DataError
from metareplay.limits import GB, limits, refuse_beyond

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
_GREY = frozenset({"1", "L", "LA"})
_DEEP = frozenset({"I", "F", "I;16", "I;16B", "I;16L", "I;16N"})

Encoded = bytes | str | Path
T = TypeVar("T")


def read_pixels(
    images: Sequence[Encoded | None],
    name: Callable[[int], str],
    size: tuple[int, int] | None = None,
    mode: str | None = None,
) -> tuple[Tensor, str]:
    """Images as uint8 (N, C, H, W), resized to ``size`` (H, W) if given, and their Pillow mode: "L" (grey) or "RGB"."""
    try:
        import PIL.Image
    except ImportError as error:
        raise DataError(INSTALL_HINT) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)  # the limit is ours
        mode = mode or _common_mode(images, name)
        pixels = _stacked(images, name, size, mode)
    stacked = torch.from_numpy(pixels)
    if stacked.ndim == 3:
        return stacked.unsqueeze(1), mode  # (N, H, W) -> (N, 1, H, W)
    return stacked.permute(0, 3, 1, 2).contiguous(), mode  # (N, H, W, 3) -> (N, 3, H, W)


def _stacked(
    images: Sequence[Encoded | None], name: Callable[[int], str], size: tuple[int, int] | None, mode: str
) -> np.ndarray:
    """The pixels of all images, which must have the same size: (N, H, W) or (N, H, W, 3)."""
    pixels: np.ndarray | None = None
    for index, image in enumerate(images):
        array = _decoded(image, name(index), mode, size)  # (H, W) or (H, W, 3)
        if pixels is None:
            whole = len(images) * array.size
            refuse_beyond("memory_gb", whole / GB, f"{len(images)} images like {name(0)} have {whole:,} bytes, in GB")
            pixels = np.empty((len(images), *array.shape), dtype=np.uint8)
        if array.shape != pixels.shape[1:]:
            (height, width), (first_height, first_width) = array.shape[:2], pixels.shape[1:3]
            raise DataError(
                f"{name(index)} has {height} x {width} pixels (height x width), "
                f"{name(0)} {first_height} x {first_width}; images must have the same size: resize them, "
                f"or have them resized with --set data.image_size=[{first_height},{first_width}]"
            )
        pixels[index] = array
    if pixels is None:
        raise DataError("there are no images; give at least one")
    return pixels


def _common_mode(images: Sequence[Encoded | None], name: Callable[[int], str]) -> str:
    """Grey if all images are; only the headers are read."""
    grey = True
    for index, image in enumerate(images):
        mode = _opened(image, name(index), lambda opened: str(opened.mode))
        if mode in _DEEP:
            raise DataError(
                f"{name(index)} has more than 8 bits per pixel (mode {mode}); save the images with 8 bits per channel"
            )
        grey = grey and mode in _GREY
    return "L" if grey else "RGB"


def _decoded(image: Encoded | None, name: str, mode: str, size: tuple[int, int] | None) -> np.ndarray:
    def pixels(opened: Any) -> np.ndarray:
        from PIL import Image, ImageOps

        upright = ImageOps.exif_transpose(opened)
        if upright.mode == "P":
            upright = upright.convert("RGBA")  # palettes with transparency warn otherwise
        plain = upright.convert(mode)
        if size is not None and (plain.height, plain.width) != size:
            plain = plain.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        return np.asarray(plain, dtype=np.uint8)

    return _opened(image, name, pixels)


def _refuse_huge(name: str, pixels: int) -> None:
    refuse_beyond("image_megapixels", pixels / 1e6, f"{name} claims too many pixels, in millions")


def _opened(image: Encoded | None, name: str, use: Callable[[Any], T]) -> T:
    """Open an image and use it; whatever Pillow says of a broken one, the error names the file."""
    from PIL import Image

    if image is None:
        raise DataError(f"{name} has no image; remove the row")
    if (most := limits().image_megapixels * 1e6) > (Image.MAX_IMAGE_PIXELS or most):
        Image.MAX_IMAGE_PIXELS = int(most)  # the user raised the limit
    try:
        with Image.open(io.BytesIO(image) if isinstance(image, bytes) else image) as opened:
            _refuse_huge(name, opened.width * opened.height)
            return use(opened)
    except (DataError, MemoryError):
        raise
    except Image.DecompressionBombError:
        _refuse_huge(name, 2 * (Image.MAX_IMAGE_PIXELS or 0))
        raise
    except Exception as error:  # damaged images make the decoders raise almost anything
        raise DataError(
            f"{name} cannot be read as an image; the file is truncated, corrupt or not an image: remove or replace it"
        ) from error
