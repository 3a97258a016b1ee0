"""Edges and colours: how steeply the brightness of an image rises, where and in which direction; where its colours are.

Letters, symbols or other products are made of the same pixels as the images of a task, whose densities therefore find
them ordinary; their edges run elsewhere. And what photographs of the same kind have in common is seen in their edges
and in coarse colours rather than in single pixels. So a task's images are also described by the logarithms of the mean
squared slopes in overlapping cells, by direction, in the manner of histograms of oriented gradients [Dalal and Triggs
2005], and images of several channels by the mean of each colour there, with the same kind of density as the inputs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import pi
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from metareplay.inference.statistics.density import InputDensity, input_density
from metareplay.inference.statistics.moments import Moments, MomentSums
from metareplay.inference.statistics.passes import EDGES
from metareplay.inference.statistics.settings import StatisticsSettings

MEAN = f"{EDGES}.mean"
"""Stored where there is a density of them."""
FLOOR, UNITS = "edges.floor", "edges.units"
LEAST_FLOOR, FLOOR_SHARE = 1e-12, 0.02
"""The floor relative to the mean of a task's images."""
LEAST_UNIT, LEAST_BRIGHTNESS = 0.1, 1e-6
"""The smallest unit of logarithms, and of colours relative to that of brightness: images of the first task may be grey.
The brightness of blank ones has no unit."""
DIRECTIONS = 8
BLOCKS, PIXELS_PER_BLOCK = 7, 2
"""Blocks on a side, fewer for small images; cells are two by two of them."""
SMALLEST_SIDE, LARGEST_SIDE = 4, 32
"""Smaller images have no edges; larger ones are averaged down to this size."""
AT_ONCE = 100
"""Images whose slopes are taken together: all of them stay in the cache."""
PART, HELD = 2000, 10
"""Images that are described together, and of how many such parts the descriptions are kept to be read again."""
MOST_MOMENTS = 0.125
"""The largest share of the permitted size that the covariance of edges may take."""
MEASURED = 2000
"""Images from which the scale is taken."""


def has_edges(shape: Sequence[int]) -> bool:
    """Whether inputs of this shape (C, H, W) are images that are large enough."""
    return len(shape) == 3 and min(shape[1:]) >= SMALLEST_SIDE


class EdgeScale(NamedTuple):
    """How slopes and colours become numbers that can be compared: the same for all tasks, from images of the first."""

    floor: Tensor
    """What is added to squared slopes (), so that the logarithm of an empty cell is not remarkable."""
    units: Tensor
    """By which the logarithms and the colours of each channel are divided (1 + C,); none of one channel (0,)."""

    @classmethod
    def of(cls, images: Tensor) -> "EdgeScale":
        """From some images (N, C, H, W)."""
        sample = images[:: max(1, len(images) // MEASURED)]
        found = slopes(sample).double()
        floor = (FLOOR_SHARE * found.mean()).clamp_min(LEAST_FLOOR)
        if sample.shape[1] == 1:
            return cls(floor, torch.zeros(0, dtype=torch.float64))
        of_slopes = (found + floor).log().std().nan_to_num(1.0).clamp_min(LEAST_UNIT)
        of_colours = torch.stack([part.double().std() for part in colours(sample).unbind(1)]).nan_to_num(1.0)  # (C,)
        of_colours[0] = torch.where(of_colours[0] > LEAST_BRIGHTNESS, of_colours[0], 1.0)
        of_colours.clamp_(min=LEAST_UNIT * of_colours[0])
        return cls(floor, torch.cat([of_slopes.unsqueeze(0), of_colours]))

    @classmethod
    def stored(cls, tensors: Mapping[str, Tensor]) -> "EdgeScale | None":
        """From ``tensors``; None for tasks without edges."""
        return cls(tensors[FLOOR], tensors[UNITS]) if FLOOR in tensors else None

    def tensors(self) -> dict[str, Tensor]:
        """To be stored with every task."""
        return {FLOOR: self.floor, UNITS: self.units}

    def numbers(self, images: Tensor) -> Tensor:
        """The description of images: (N, C, H, W) -> (N, S)."""
        logs = (self._slopes(images).double() + self.floor).log()  # (N, D h w)
        if not len(self.units):
            return logs.float()
        tinted = colours(images) / self.units[1:].unsqueeze(1).float()  # (N, C, h w)
        return torch.cat([(logs / self.units[0]).float(), tinted.flatten(1)], 1)

    def _slopes(self, images: Tensor) -> Tensor:
        return slopes(images)


def slopes(images: Tensor) -> Tensor:
    """Mean squared slopes in every cell, by direction: (N, C, H, W) -> (N, S)."""
    parts = [slopes_together(part.float()) for part in images.split(AT_ONCE)]
    return torch.cat(parts) if parts else torch.zeros(0, 1)


def slopes_together(images: Tensor) -> Tensor:
    """The same, all at once."""
    images = _small(images)
    padded = F.pad(images, (1, 1, 1, 1), mode="replicate")
    right = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]  # (N, C, H, W)
    down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
    angles = 2 * pi / DIRECTIONS * torch.arange(DIRECTIONS // 2, device=images.device)  # the others are opposite
    turns = torch.stack([angles.cos(), angles.sin()], 1)  # (D / 2, 2)
    along = turns @ torch.stack([right.flatten(1), down.flatten(1)], 1)  # (N, 2, C H W) -> (N, D / 2, C H W)
    rising = along.clamp_min_(0.0).square_().unflatten(2, right.shape[1:]).sum(2)  # (N, D / 2, H, W)
    squares = torch.stack([right.square().sum(1), (right * down).sum(1), down.square().sum(1)], 1)  # (N, 3, H, W)
    rows, columns = (_cells(side, images.device) for side in images.shape[2:])  # (H, h), (W, w)
    up = rows.T @ (rising @ columns)  # (N, D / 2, h, w)
    products = rows.T @ (squares @ columns)  # (N, 3, h, w)
    expanded = torch.stack([turns[:, 0].square(), 2 * turns[:, 0] * turns[:, 1], turns[:, 1].square()], 1)  # (D / 2, 3)
    both = (expanded @ products.flatten(2)).unflatten(2, up.shape[2:])  # (N, D / 2, h, w), up and down together
    return torch.cat([up, (both - up).clamp_min(0.0)], 1).flatten(1)  # (N, D h w)


def colours(images: Tensor) -> Tensor:
    """The mean brightness and the mean differences between channels, in every cell: (N, C, H, W) -> (N, C, h w)."""
    images = _small(images.float())
    rows, columns = (_cells(side, images.device) for side in images.shape[2:])
    cells = (rows.T @ (images @ columns)).flatten(2)  # (N, C, h w)
    return _opponents(images.shape[1], images.device) @ cells


def _opponents(channels: int, device: torch.device) -> Tensor:
    """Of channels (C, C): their mean, and each but the first taken from the mean of those before it [Helmert 1876]."""
    contrasts = torch.eye(channels, device=device)
    for row in range(1, channels):
        contrasts[row, :row], contrasts[row, row] = 1 / row, -1.0
    contrasts[0] = 1 / channels
    return contrasts


def _small(images: Tensor) -> Tensor:
    height, width = (min(side, LARGEST_SIDE) for side in images.shape[2:])
    return images if (height, width) == images.shape[2:] else F.adaptive_avg_pool2d(images, (height, width))


def _cells(side: int, device: torch.device) -> Tensor:
    """Shares of pixels in the overlapping cells along a side: (side, cells)."""
    blocks = F.adaptive_avg_pool1d(torch.eye(side, device=device).unsqueeze(0), min(BLOCKS, side // PIXELS_PER_BLOCK))
    return F.avg_pool1d(blocks, 2, 1)[0]


def scale_of(x: Tensor, earlier: Sequence[Mapping[str, Tensor]], settings: StatisticsSettings) -> EdgeScale | None:
    """With which a new task's inputs (N, ...) are described: that of the earlier tasks; None for other inputs.

    And none where earlier tasks have no edges, which would then not be comparable, or where there is no room for them.
    """
    if not settings.edges or not has_edges(x.shape[1:]) or not len(x) or settings.few_columns(x[0].numel()):
        return None
    if earlier:
        return next((scale for task in earlier if (scale := EdgeScale.stored(task)) is not None), None)
    scale = EdgeScale.of(x)
    return scale if bytes_of_moments(scale, x) <= MOST_MOMENTS * settings.megabytes * 2**20 else None


def bytes_of_moments(scale: EdgeScale, x: Tensor) -> int:
    """The size of the covariance of the edges of some images."""
    size = scale.numbers(x[:1]).shape[1]
    return 2 * size * (size + 1)


def described_parts(x: Tensor, scale: EdgeScale) -> Callable[[], Iterable[Tensor]]:
    """The descriptions of images, part by part; of not too many images they are kept to be read again."""

    def numbers() -> Iterator[Tensor]:
        for part in x.split(PART):
            yield scale.numbers(part)

    return partial(iter, list(numbers())) if len(x) <= HELD * PART else numbers


def described_edges(
    numbers: Callable[[], Iterable[Tensor]],
    labels: Tensor,
    scale: EdgeScale,
    settings: StatisticsSettings,
    *,
    used: int,
) -> dict[str, Tensor]:
    """The density of the edges of a task's images, described part by part (B, S), by class; and the scale.

    ``used``: bytes of what is stored about inputs already, which count towards the permitted size.
    """
    classes, size = int(labels.max()) + 1, next(iter(numbers())).shape[1]
    kinds = 2 if len(scale.units) else 1  # edges, and colours
    if settings.gaussians_that_fit(classes, size, used=used, kinds=kinds)[1] == 0:  # too many for separate densities
        labels, classes = torch.zeros_like(labels), 1
    components, directions = settings.gaussians_that_fit(classes, size, used=used, kinds=kinds)
    if directions == 0:
        return scale.tensors()
    density = input_density(lambda: zip(numbers(), labels.split(PART), strict=True), classes, directions, components)
    return {**scale.tensors(), **density.tensors(EDGES)}


def moments_of_edges(numbers: Callable[[], Iterable[Tensor]], labels: Tensor) -> Moments:
    """Of the same descriptions: class means, and the covariance within classes."""
    sums = MomentSums(int(labels.max()) + 1)
    for part, of_part in zip(numbers(), labels.split(PART), strict=True):
        sums.add(part, of_part)
    return sums.moments()


class EdgeDensities(NamedTuple):
    """What is stored about the edges of the images of some tasks, ready to be compared with others."""

    scale: EdgeScale
    densities: Sequence[InputDensity | None]
    """By task; None where there was no room for one."""

    @classmethod
    def stored(cls, stored: Sequence[Mapping[str, Tensor]]) -> "EdgeDensities | None":
        """Of these tasks; None if none of them has any."""
        scales = [scale for task in stored if (scale := EdgeScale.stored(task)) is not None]
        if not scales:
            return None
        return cls(scales[0], [InputDensity.stored(task, EDGES) if MEAN in task else None for task in stored])

    def costs(self, numbers: Tensor) -> Tensor:
        """-log p of described edges (N, S) for each task, NaN for those without a density: (T, N)."""
        unknown = torch.full(numbers.shape[:1], torch.nan, dtype=torch.float64)
        each = [unknown if density is None else density.costs(numbers)[0].double() for density in self.densities]
        return torch.stack(each)


def drawn_numbers(stored: Mapping[str, Tensor], count: int, generator: torch.Generator) -> Tensor | None:
    """Descriptions (count, S) drawn from the density of a task's edges; None for tasks without."""
    if MEAN not in stored:
        return None
    return InputDensity.stored(stored, EDGES).draw(count, generator=generator).float()
