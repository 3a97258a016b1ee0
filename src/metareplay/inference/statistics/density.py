"""Densities of inputs: a mixture over the classes of a task, each Gaussian with a few principal directions.

The data stream through in parts: memory does not grow with their number. The variance outside the principal directions
is spread evenly over all other directions [Tipping and Bishop 1999].
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log, pi

import torch
from torch import Tensor

SMALLEST_VARIANCE = 1e-4
"""Of the mean variance: constant columns are not infinitely informative."""
SMALLEST_SQUARE = 1e-9
AT_ONCE = 500
"""Inputs that are compared with the densities together."""


@dataclass(frozen=True)
class PrincipalDirections:
    """The mean of some vectors and their main directions of variation, updated part by part."""

    count: int
    mean: Tensor
    """(F,)"""
    factors: Tensor
    """Directions times the root of their summed squares (q, F)."""
    rest: float
    """Summed squares outside the directions."""

    @classmethod
    def empty(cls, features: int) -> "PrincipalDirections":
        """Of no vectors."""
        return cls(0, torch.zeros(features, dtype=torch.float64), torch.zeros(0, features, dtype=torch.float64), 0.0)

    def updated(self, x: Tensor, directions: int) -> "PrincipalDirections":
        """With some more vectors (n, F); at most this many directions are kept, the rest is summed up."""
        if len(x) == 0:
            return self
        x = x.double()
        count, mean = self.count + len(x), x.mean(0)
        between = (self.count * len(x) / count) ** 0.5 * (self.mean - mean)  # the means' part of the scatter; (F,)
        rows = torch.cat([self.factors, x - mean, between.unsqueeze(0)])  # (q + n + 1, F)
        values, vectors = _right_singular(rows)
        kept = min(directions, int((values > 1e-7 * values.max()).sum()))
        rest = self.rest + float(values[kept:].square().sum())
        factors = values[:kept].unsqueeze(1) * vectors[:kept]  # (q, F)
        return PrincipalDirections(count, (self.count * self.mean + len(x) * mean) / count, factors, rest)

    def gaussian(self) -> tuple[Tensor, Tensor, Tensor, float]:
        """Mean (F,), unit directions (q, F), their variances (q,) and the variance in every other direction."""
        features, count = len(self.mean), max(self.count, 1)
        variances = self.factors.square().sum(1) / count  # (q,)
        units = self.factors / self.factors.norm(dim=1, keepdim=True).clamp_min(1e-30)  # (q, F)
        total, others = float(variances.sum()) + self.rest / count, max(features - len(variances), 1)
        squares = float(variances.square().sum()) + (self.rest / count) ** 2 / others  # tr S^2
        shrinkage = oracle_shrinkage(total, squares, count, features)
        mean = total / features
        noise = (1 - shrinkage) * self.rest / count / others + shrinkage * mean
        floor = max(SMALLEST_VARIANCE * mean, 1e-12)
        variances = ((1 - shrinkage) * variances + shrinkage * mean).clamp_min(floor)
        return self.mean, units, variances, max(noise, floor)


def oracle_shrinkage(trace: float, trace_of_square: float, count: int, features: int) -> float:
    """How far a covariance estimated from ``count`` vectors is shrunk to a sphere [Chen et al. 2010, OAS]."""
    if features == 1:
        return 0.0
    spread = (count + 1 - 2 / features) * (trace_of_square - trace**2 / features)
    if spread <= 0:
        return 1.0
    return min(1.0, ((1 - 2 / features) * trace_of_square + trace**2) / spread)


def _right_singular(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Singular values and right singular vectors of (m, F), largest first, by the smaller Gram matrix."""
    if len(rows) <= rows.shape[1]:
        squares, left = torch.linalg.eigh(rows @ rows.T)  # (m, m)
        values = squares.clamp_min(0).sqrt()
        vectors = (left.T @ rows) / values.clamp_min(1e-30).unsqueeze(1)  # (m, F)
    else:
        squares, right = torch.linalg.eigh(rows.T @ rows)  # (F, F)
        values, vectors = squares.clamp_min(0).sqrt(), right.T
    return values.flip(0), vectors.flip(0)


@dataclass(frozen=True)
class InputDensity:
    """p(x) of one task: the classes' Gaussians, weighted by their share of the examples."""

    mean: Tensor
    """(C, F)"""
    directions: Tensor
    """Unit vectors (C, q, F); zero where a class has fewer."""
    variances: Tensor
    """(C, q)"""
    noise: Tensor
    """The variance in every other direction (C,)."""
    share: Tensor
    """(C,)"""

    @classmethod
    def of(cls, classes: Iterable[PrincipalDirections]) -> "InputDensity":
        """From the directions of each class."""
        parts = list(classes)
        gaussians = [part.gaussian() for part in parts]
        means, units, variances, noises = zip(*gaussians, strict=True)
        most, noise = max(len(unit) for unit in units), torch.tensor(noises, dtype=torch.float64)
        directions = torch.zeros(len(parts), most, means[0].shape[0], dtype=torch.float64)  # (C, q, F)
        padded = noise.unsqueeze(1).repeat(1, most)  # (C, q)
        for index, (unit, variance) in enumerate(zip(units, variances, strict=True)):
            directions[index, : len(unit)], padded[index, : len(unit)] = unit, variance
        counts = torch.tensor([part.count for part in parts], dtype=torch.float64)
        return cls(torch.stack(means), directions, padded, noise, counts / counts.sum())

    @classmethod
    def stored(cls, tensors: Mapping[str, Tensor]) -> "InputDensity":
        """From ``tensors``."""
        names = ("mean", "directions", "variances", "noise", "share")
        return cls(*(tensors[f"inputs.{name}"].double() for name in names))

    def tensors(self) -> dict[str, Tensor]:
        """To be stored."""
        names = ("mean", "directions", "variances", "noise", "share")
        return {f"inputs.{name}": getattr(self, name).float() for name in names}

    def costs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """-log p(x), and the log of the squared distance to the nearest class's principal subspace: (N, F) -> (N,)."""
        parts = [self._costs(part.flatten(1).double()) for part in x.split(AT_ONCE)]
        costs, residuals = zip(*parts, strict=True) if parts else ((torch.zeros(0),), (torch.zeros(0),))
        return torch.cat(costs), torch.cat(residuals)

    def _costs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features, directions = x.shape[1], self.directions.shape[1]
        log_densities, residuals = [], []
        for mean, units, variances, noise, share in zip(
            self.mean, self.directions, self.variances, self.noise, self.share, strict=True
        ):
            centred = x - mean
            along = centred @ units.T  # (B, F) -> (B, q)
            rest = (centred.square().sum(1) - along.square().sum(1)).clamp_min(0)  # (B,)
            distance = (along.square() / variances).sum(1) + rest / noise  # (B,)
            volume = variances.log().sum() + (features - directions) * noise.log() + features * log(2 * pi)
            log_densities.append(share.log() - 0.5 * (distance + volume))
            residuals.append(rest)
        cost = -torch.stack(log_densities).logsumexp(0)  # (C, B) -> (B,)
        nearest = torch.stack(residuals).amin(0)  # (C, B) -> (B,)
        return cost, nearest.clamp_min(SMALLEST_SQUARE).log()


def input_density(parts: Iterable[tuple[Tensor, Tensor]], classes: int, directions: int) -> InputDensity:
    """From batches of inputs (B, ...) and class indices (B,)."""
    of_classes: list[PrincipalDirections] = []
    for x, y in parts:
        rows = x.flatten(1)  # (B, F)
        of_classes = of_classes or [PrincipalDirections.empty(rows.shape[1]) for _ in range(classes)]
        of_classes = [part.updated(rows[y == label], directions) for label, part in enumerate(of_classes)]
    return InputDensity.of([part for part in of_classes if part.count])
