"""Standardisation of a user's data, fixed by the first task so that later tasks do not affect earlier ones."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

RARE = 0.05
"""The scale of a column is at least what it would be if one row in twenty differed from its most common value."""
OPEN = "x_open"


@dataclass(frozen=True)
class Scaling:
    """Means and scales; empty where nothing is scaled.

    Tables are scaled per column, each in its own units, images by a single mean and scale. A column that is constant
    in the first task is open: its scale is found in the first task in which it varies. Its centre stays, so inputs
    with the old value are still zero there and what was learned from them still holds.
    """

    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, x: Tensor, y: Tensor, *, regression: bool, alike: bool = False) -> Self:
        """The scaling of the first task's data; columns that are ``alike`` have one unit, as features of a network."""
        tensors = {"x_mean": x.mean(0) if x.ndim == 2 else x.mean()}
        if x.ndim != 2:
            tensors["x_scale"] = _usable(x.std(correction=0))
        elif alike:
            scale = x.std(0, correction=0)  # (N, D) -> (D,)
            tensors["x_scale"] = _usable(scale.clamp_min(0.1 * float(scale.mean())))
        else:
            tensors |= _by_column(x)
        if regression:
            tensors |= {"y_mean": y.mean(0), "y_scale": _usable(y.std(0, correction=0))}
        return cls(tensors)

    def following(self, x: Tensor) -> Self:
        """With the scales of open columns that vary in a later task's inputs (N, ...)."""
        if OPEN not in self.tensors or len(x) == 0:
            return self
        constant, centre = self.tensors[OPEN] > 0, self.tensors["x_mean"]
        around = x - centre
        share = (around != 0).float().mean(0)  # (N, D) -> (D,)
        found = constant & (share > 0)
        if not bool(found.any()):
            return self
        size = around.square().mean(0).sqrt() * _as_if_common(share)  # (D,)
        scale = torch.where(found, size, self.tensors["x_scale"])
        still = (constant & ~found).float()
        changed = {"x_scale": _usable(scale), OPEN: still}
        kept = {name: tensor for name, tensor in self.tensors.items() if name != OPEN or bool(still.any())}
        return type(self)({**kept, **{name: tensor for name, tensor in changed.items() if name in kept}})

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


def _by_column(x: Tensor) -> dict[str, Tensor]:
    """Means and scales of columns (N, D), and which of them are open, if any."""
    common = x.mode(0).values  # (N, D) -> (D,)
    share = (x != common).float().mean(0)  # (D,)
    constant = share == 0
    centre = torch.where(constant, common, x.mean(0))
    scale = x.std(0, correction=0) * _as_if_common(share)  # (D,)
    scale = torch.where(constant, centre.abs(), scale)  # a guess, until they vary
    open_columns = {OPEN: constant.float()} if bool(constant.any()) else {}
    return {"x_mean": centre, "x_scale": _usable(scale), **open_columns}


def _as_if_common(share: Tensor) -> Tensor:
    """The factor of scales of columns of which only a share differs from the most common value (D,)."""
    return (RARE / share.clamp_min(1e-9)).sqrt().clamp_min(1.0)
