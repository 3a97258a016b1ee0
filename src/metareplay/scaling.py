"""Standardisation of a user's data, fixed by the first task so that later tasks do not affect earlier ones."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scaling:
    """Means and scales; empty where nothing is scaled.

    Tables are scaled per column, images by a single mean and scale. A column that barely varies in the first task gets
    a tenth of the columns' mean scale, so that it cannot explode in a later task.
    """

    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, x: Tensor, y: Tensor, *, regression: bool) -> Self:
        """The scaling of the first task's data."""
        if x.ndim == 2:
            scale = x.std(0, correction=0)  # (N, D) -> (D,)
            centre, scale = x.mean(0), scale.clamp_min(0.1 * float(scale.mean()))
        else:
            centre, scale = x.mean(), x.std(correction=0)
        tensors = {"x_mean": centre, "x_scale": _usable(scale)}
        if regression:
            tensors |= {"y_mean": y.mean(0), "y_scale": _usable(y.std(0, correction=0))}
        return cls(tensors)

    def x(self, x: Tensor) -> Tensor:
        """Scaled inputs."""
        return (x - self.tensors["x_mean"]) / self.tensors["x_scale"] if "x_mean" in self.tensors else x

    def y(self, y: Tensor) -> Tensor:
        """Scaled targets; class indices stay as they are."""
        return (y - self.tensors["y_mean"]) / self.tensors["y_scale"] if "y_mean" in self.tensors else y

    def undo_y(self, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Predictions in the user's units."""
        if "y_mean" not in self.tensors:
            return mean, std
        return mean * self.tensors["y_scale"] + self.tensors["y_mean"], std * self.tensors["y_scale"]


def _usable(scale: Tensor) -> Tensor:
    return torch.where(scale > 0, scale, torch.ones_like(scale))
