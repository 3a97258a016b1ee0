"""Transformed copies of a task's inputs that belong to none of its classes.

Each function takes a batch (B, ...) and the rows (M,) of it to transform, and returns their copies (M, ...). Images
are taken apart and put together wrongly; the columns of any other input are made independent, or moved away from the
data.
"""

from collections.abc import Sequence
from itertools import permutations
from math import prod
from typing import Protocol

import torch
from torch import Generator, Tensor

from metareplay.batches.augment import Augmentation

BLEND = (0.3, 0.7)
"""Range of the first image's share in a blend of two."""
BEYOND = (0.5, 1.5)
"""Range of how far a row is moved away from another, in multiples of their difference."""
NOISE = (1.0, 3.0)
"""Range of the standard deviation of noise, in multiples of a column's."""
LEAST_SPREAD = 0.1
"""Least standard deviation of a column's noise, in multiples of the columns' mean: a constant column varies, too."""
ORDERS = torch.tensor([order for order in permutations(range(4)) if order != (0, 1, 2, 3)])
"""All orders of four quadrants but the right one (23, 4)."""


class Transformation(Protocol):
    """A way to turn inputs into others that belong to none of the classes."""

    def __call__(self, x: Tensor, rows: Tensor, *, generator: Generator) -> Tensor:
        """A batch (B, ...) and the rows (M,) to transform -> their transformed copies (M, ...)."""
        ...


def transformations_for(
    shape: Sequence[int], *, rotations: bool, augmentation: Augmentation = "none"
) -> tuple[Transformation, ...]:
    """Those for inputs of this shape, without any that makes inputs of the task's own classes.

    With ``rotations`` as separate classes these are excluded. Randomly flipped training images exclude horizontal
    flips, and together with rotations all flips.
    """
    if not is_image(shape):
        return (*((shuffled_columns,) if prod(shape) > 1 else ()), beyond_the_hull, scaled_noise)
    flips: tuple[Transformation, ...] = (flipped,)
    if augmentation == "crop-flip":
        flips = () if rotations else (upside_down,)
    return (*(() if rotations else (rotated,)), *flips, shuffled_quadrants, cut_and_pasted, blended)


def is_image(shape: Sequence[int]) -> bool:
    """Whether inputs are (C, H, W) with quadrants."""
    return len(shape) == 3 and min(shape[1:]) > 1


def other_rows(x: Tensor, rows: Tensor, *, generator: Generator) -> Tensor:
    """For each row a random other row of the batch: (M,)."""
    return (rows + torch.randint(1, len(x), rows.shape, generator=generator)) % len(x)


def uniform(count: int, bounds: tuple[float, float], x: Tensor, *, generator: Generator) -> Tensor:
    """A random factor for each of ``count`` inputs like those of x: (M, 1, ...)."""
    low, high = bounds
    shares = torch.rand(count, *[1] * (x.dim() - 1), generator=generator, dtype=x.dtype)
    return low + (high - low) * shares


# Images (B, C, H, W).


def rotated(x: Tensor, rows: Tensor, *, generator: Generator) -> Tensor:
    """Rotated by 90, 180 or 270 degrees; by 180 unless they are square."""
    images = x[rows]  # (M, C, H, W)
    turns = (1, 2, 3) if x.shape[-1] == x.shape[-2] else (2,)
    versions = torch.stack([images.rot90(turn, (-2, -1)) for turn in turns])  # (turns, M, C, H, W)
    return versions[torch.randint(len(turns), rows.shape, generator=generator), torch.arange(len(rows))]


def flipped(x: Tensor, rows: Tensor, *, generator: Generator) -> Tensor:
    """Mirrored, left to right or upside down."""
    vertical = torch.rand(len(rows), 1, 1, 1, generator=generator) < 0.5
    return torch.where(vertical, x[rows].flip(-2), x[rows].flip(-1))


def upside_down(x: Tensor, rows: Tensor, *, generator: Generator) -> Tensor:
    """Mirrored upside down."""
    return x[rows].flip(-2)


def shuffled_quadrants(x: Tensor, rows: Tensor, *, generator: Generator) -> Tensor:
    """The four quadrants in another order; the middle row or column of an odd size stays."""
    images, (height, width) = x[rows], (x.shape[-2] // 2, x.shape[-1] // 2)
    tops, lefts = (slice(None, height), slice(-height, None)), (slice(None, width), slice(-width, None))
    corners = [(..., top, left) for top in tops for left in lefts]
    quadrants = torch.stack([images[corner] for corner in corners])  # (4, M, C, H / 2, W / 2)
    order = ORDERS[torch.randint(len(ORDERS), rows.shape, generator=generator)].T  # (4, M)
    shuffled = quadrants[order, torch.arange(len(rows))]
    for corner, quadrant in zip(corners, shuffled, strict=True):
        images[corner] = quadrant
    return images


def cut_and_pasted(x: Tensor, rows: Tensor, *, generator: Generator) -> Tensor:
    """A patch of half the side, cut from another image of the batch, pasted at a random position."""
    images, (height, width) = x[rows], (x.shape[-2] // 2, x.shape[-1] // 2)
    tops = torch.randint(x.shape[-2] - height + 1, (2, len(rows), 1), generator=generator) + torch.arange(height)
    lefts = torch.randint(x.shape[-1] - width + 1, (2, len(rows), 1), generator=generator) + torch.arange(width)
    tops, lefts = tops[:, :, None, :, None], lefts[:, :, None, None, :]  # (2, M, 1, H / 2, 1), (2, M, 1, 1, W / 2)
    channel, copy = torch.arange(x.shape[1]).view(1, -1, 1, 1), torch.arange(len(rows)).view(-1, 1, 1, 1)
    source = other_rows(x, rows, generator=generator).view(-1, 1, 1, 1)
    images[copy, channel, tops[1], lefts[1]] = x[source, channel, tops[0], lefts[0]]  # (M, C, H / 2, W / 2)
    return images


def blended(x: Tensor, rows: Tensor, *, generator: Generator) -> Tensor:
    """Mixed with another image of the batch."""
    share = uniform(len(rows), BLEND, x, generator=generator)
    return share * x[rows] + (1 - share) * x[other_rows(x, rows, generator=generator)]


# Any inputs (B, ...).


def shuffled_columns(x: Tensor, rows: Tensor, *, generator: Generator) -> Tensor:
    """Each column is drawn from a random row of the batch: the columns' dependence is lost."""
    columns = x.flatten(1)  # (B, D)
    source = torch.randint(len(x), (len(rows), columns.shape[1]), generator=generator)  # (M, D)
    return columns.gather(0, source).view(len(rows), *x.shape[1:])


def beyond_the_hull(x: Tensor, rows: Tensor, *, generator: Generator) -> Tensor:
    """Moved away from another row of the batch, often out of the convex hull of the data."""
    away = uniform(len(rows), BEYOND, x, generator=generator)
    return x[rows] + away * (x[rows] - x[other_rows(x, rows, generator=generator)])


def scaled_noise(x: Tensor, rows: Tensor, *, generator: Generator) -> Tensor:
    """Gaussian noise around the columns' means, one to three times as wide as the columns."""
    spread, mean = torch.std_mean(x, 0, correction=0)  # (...) each
    spread = spread.clamp_min(LEAST_SPREAD * float(spread.mean()))
    noise = torch.randn(len(rows), *x.shape[1:], generator=generator, dtype=x.dtype)  # (M, ...)
    return mean + uniform(len(rows), NOISE, x, generator=generator) * spread * noise
