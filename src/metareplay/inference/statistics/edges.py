"""Edges: how steeply the brightness of an image rises, where and in which direction, and how usual that is for a task.

Letters, symbols or other products are made of the same pixels as the images of a task, whose densities therefore find
them ordinary; their edges run elsewhere. So a task's images are also described by the logarithms of the mean squared
slopes in overlapping cells, by direction, in the manner of histograms of oriented gradients [Dalal and Triggs 2005],
with the same kind of density as the inputs.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import pi
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from metareplay.inference.statistics.density import InputDensity, input_density
from metareplay.inference.statistics.passes import in_parts, total_bytes
from metareplay.inference.statistics.rows import FOLDS
from metareplay.inference.statistics.settings import StatisticsSettings

EDGES = "edges"
"""The prefix of what is stored about them."""
FLOOR = "edges.floor"
"""What is added to squared slopes (), so that the logarithm of an empty cell is not remarkable."""
LEAST_FLOOR, FLOOR_SHARE = 1e-12, 0.02
"""The floor relative to the mean of a task's images."""
DIRECTIONS = 8
BLOCKS, PIXELS_PER_BLOCK = 7, 2
"""Blocks on a side, fewer for small images; cells are two by two of them."""
SMALLEST_SIDE, LARGEST_SIDE = 4, 32
"""Smaller images have no edges; larger ones are averaged down to this size."""
AT_ONCE = 100
"""Images whose slopes are taken together: all of them stay in the cache."""
PART = 2000
MEASURED = 2000
"""Images from which the floor is taken."""


def has_edges(shape: Sequence[int]) -> bool:
    """Whether inputs of this shape (C, H, W) are images that are large enough."""
    return len(shape) == 3 and min(shape[1:]) >= SMALLEST_SIDE


def slopes(images: Tensor) -> Tensor:
    """Mean squared slopes in every cell, by direction: (N, C, H, W) -> (N, S)."""
    parts = [_slopes(part.float()) for part in images.split(AT_ONCE)]
    return torch.cat(parts) if parts else torch.zeros(0, 1)


def _slopes(images: Tensor) -> Tensor:
    height, width = (min(side, LARGEST_SIDE) for side in images.shape[2:])
    if (height, width) != images.shape[2:]:
        images = F.adaptive_avg_pool2d(images, (height, width))
    padded = F.pad(images, (1, 1, 1, 1), mode="replicate")
    right = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]  # (N, C, H, W)
    down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
    angles = 2 * pi / DIRECTIONS * torch.arange(DIRECTIONS // 2, device=images.device)  # the others are opposite
    turns = torch.stack([angles.cos(), angles.sin()], 1)  # (D / 2, 2)
    along = turns @ torch.stack([right.flatten(1), down.flatten(1)], 1)  # (N, 2, C H W) -> (N, D / 2, C H W)
    rising = along.clamp_min_(0.0).square_().unflatten(2, right.shape[1:]).sum(2)  # (N, D / 2, H, W)
    squares = torch.stack([right.square().sum(1), (right * down).sum(1), down.square().sum(1)], 1)  # (N, 3, H, W)
    rows, columns = _cells(height, images.device), _cells(width, images.device)  # (H, h), (W, w)
    up = rows.T @ (rising @ columns)  # (N, D / 2, h, w)
    products = rows.T @ (squares @ columns)  # (N, 3, h, w)
    expanded = torch.stack([turns[:, 0].square(), 2 * turns[:, 0] * turns[:, 1], turns[:, 1].square()], 1)  # (D / 2, 3)
    both = (expanded @ products.flatten(2)).unflatten(2, up.shape[2:])  # (N, D / 2, h, w), up and down together
    return torch.cat([up, (both - up).clamp_min(0.0)], 1).flatten(1)  # (N, D h w)


def _cells(side: int, device: torch.device) -> Tensor:
    """Shares of pixels in the overlapping cells along a side: (side, cells)."""
    blocks = F.adaptive_avg_pool1d(torch.eye(side, device=device).unsqueeze(0), min(BLOCKS, side // PIXELS_PER_BLOCK))
    return F.avg_pool1d(blocks, 2, 1)[0]


def described_edges(
    x: Tensor, labels: Tensor, settings: StatisticsSettings, *, used: int, floor: Tensor | None = None
) -> dict[str, Tensor]:
    """The density of the edges of a task's images (N, C, H, W), by class; nothing for other inputs.

    ``used``: bytes of what is stored about inputs already, which count towards the permitted size. ``floor``: that of
    the task's earlier images.
    """
    if not has_edges(x.shape[1:]) or not len(x) or settings.few_columns(x[0].numel()):
        return {}
    found = slopes(x)
    if floor is None:
        sample = found[:: max(1, len(found) // MEASURED)]
        floor = (FLOOR_SHARE * sample.double().mean()).clamp_min(LEAST_FLOOR)
    values, classes = _logs(found, floor), int(labels.max()) + 1
    if settings.gaussians_that_fit(classes, values.shape[1], used=used)[1] == 0:  # too many for separate densities
        labels, classes = torch.zeros_like(labels), 1
    components, directions = settings.gaussians_that_fit(classes, values.shape[1], used=used)
    if directions == 0:
        return {}
    density = input_density(partial(in_parts, values, labels, PART), classes, directions, components)
    return {FLOOR: floor, **density.tensors(EDGES)}


def _logs(found: Tensor, floor: Tensor) -> Tensor:
    return (found.double() + floor).log().float()


class EdgeDensity(NamedTuple):
    """What is stored about the edges of a task's images."""

    floor: Tensor
    density: InputDensity

    @classmethod
    def stored(cls, tensors: Mapping[str, Tensor]) -> "EdgeDensity | None":
        """From ``tensors``; None for tasks without."""
        return cls(tensors[FLOOR], InputDensity.stored(tensors, EDGES)) if FLOOR in tensors else None

    def costs(self, images: Tensor) -> Tensor:
        """-log p of the edges of images: (N, C, H, W) -> (N,)."""
        return self.density.costs(_logs(slopes(images), self.floor))[0].double()


def edge_costs(images: Tensor, tasks: Tensor, stored: Sequence[Mapping[str, Tensor]]) -> Tensor:
    """-log p of the edges of images for their tasks (N,); NaN where nothing is stored about edges: (N,)."""
    costs = torch.full((len(images),), torch.nan, dtype=torch.float64)
    for task in tasks.unique().tolist():
        if (density := EdgeDensity.stored(stored[task])) is not None:
            rows = tasks == task
            costs[rows] = density.costs(images[rows])
    return costs


def left_out_edges(
    x: Tensor,
    labels: Tensor,
    parts: Iterable[tuple[Tensor, Tensor]],
    stored: Mapping[str, Tensor],
    settings: StatisticsSettings,
) -> Tensor:
    """-log p of the edges of a task's images, part by part, by the others' density where these are enough: (N,)."""
    whole, costs, used = EdgeDensity.stored(stored), list[Tensor](), bytes_of_inputs(stored)
    assert whole is not None
    for part, rest in parts:
        others = described_edges(x[rest], labels[rest], settings, used=used, floor=whole.floor)
        density = EdgeDensity.stored(others) if len(x) > FOLDS else None
        costs.append((density or whole).costs(x[part]))
    return torch.cat(costs) if costs else whole.costs(x)


def bytes_of_inputs(tensors: Mapping[str, Tensor]) -> int:
    """The size of the density of a task's inputs."""
    return total_bytes([tensor for name, tensor in tensors.items() if name.startswith("inputs.")])
