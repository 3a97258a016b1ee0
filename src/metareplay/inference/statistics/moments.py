"""Moments of features: each class's mean and the covariance that a task's classes share, in the space of one layer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metareplay.inference.statistics.density import oracle_shrinkage

LEAST_SHRINKAGE = 0.02
"""Of the mean variance: units that hardly vary are not infinitely informative."""
RIDGE = 0.01
"""How strongly the map from old to new features is drawn to the identity, relative to the mean variance."""

AT_ONCE = 2**22
"""Numbers of covariances that are mapped together."""
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Moments:
    """Of one task in one space, in float64."""

    mean: Tensor
    """(C, F)"""
    covariance: Tensor
    """Within classes (F, F)."""
    count: int

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """To be stored: of a symmetric matrix the lower half."""
        row, column = torch.tril_indices(*self.covariance.shape)
        return {
            f"{prefix}.mean": self.mean.float(),
            f"{prefix}.covariance": self.covariance[row, column].float(),
            f"{prefix}.count": torch.tensor(self.count),
        }

    @classmethod
    def stored(cls, tensors: Mapping[str, Tensor], prefix: str) -> "Moments":
        """From ``tensors``."""
        mean, half = tensors[f"{prefix}.mean"].double(), tensors[f"{prefix}.covariance"].double()
        features = mean.shape[1]
        row, column = torch.tril_indices(features, features)
        covariance = torch.zeros(features, features, dtype=torch.float64)
        covariance[row, column] = half
        covariance[column, row] = half
        return cls(mean, covariance, int(tensors[f"{prefix}.count"]))

    def mapped(self, drift: "AffineMap") -> "Moments":
        """As they are after the network changed: m -> m W + b, C -> W' C W + what the map leaves open."""
        weights, shift = drift.weights, drift.shift
        covariance = weights.T @ self.covariance @ weights + drift.residual
        return Moments(self.mean @ weights + shift, covariance, self.count)

    @staticmethod
    def mapped_together(stored: Sequence[Mapping[str, Tensor]], prefix: str, drift: "AffineMap") -> Iterator[Tensors]:
        """What ``tensors`` stores of ``mapped`` moments, of many tasks in a few products; equal up to rounding."""
        features, weights = len(drift.weights), drift.weights
        row, column = torch.tril_indices(features, features)
        size = max(1, AT_ONCE // features**2)
        for start in range(0, len(stored), size):
            part = stored[start : start + size]
            means = [tensors[f"{prefix}.mean"] for tensors in part]
            moved = (torch.cat(means).double() @ weights + drift.shift).float()  # (C of all, F)
            half = torch.stack([tensors[f"{prefix}.covariance"] for tensors in part]).double()  # (T, F (F + 1) / 2)
            whole = half.new_zeros(len(part), features, features)  # (T, F, F)
            whole[:, row, column] = half
            whole[:, column, row] = half
            once = (whole @ weights).mT.reshape(-1, features)  # W' C, one below the other; (T F, F)
            changed = (once @ weights).unflatten(0, (len(part), features)) + drift.residual  # (T, F, F)
            halves = changed[:, row, column].float()
            for mean, covariance in zip(moved.split([len(mean) for mean in means]), halves, strict=True):
                yield {f"{prefix}.mean": mean, f"{prefix}.covariance": covariance}

    def shrunk(self) -> Tensor:
        """The covariance, drawn to a sphere as far as the number of examples asks for; (F, F)."""
        features, trace = len(self.covariance), float(self.covariance.trace())
        share = oracle_shrinkage(trace, float(self.covariance.square().sum()), self.count, features)
        return with_sphere(self.covariance, max(share, LEAST_SHRINKAGE))


def with_sphere(covariance: Tensor, share: float) -> Tensor:
    """A mixture of a covariance (F, F) and a sphere of the same trace."""
    radius = max(float(covariance.diagonal().mean()), 1e-12)
    return (1 - share) * covariance + share * radius * torch.eye(len(covariance), dtype=covariance.dtype)


class MomentSums:
    """Sums from which moments are made; the data stream through."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.counts = torch.zeros(classes, dtype=torch.float64)
        self.sums = torch.zeros(0)
        self.products = torch.zeros(0)
        self.centre = torch.zeros(0)

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Features (B, F) and class indices (B,)."""
        x = features.double()
        if not self.sums.numel():
            self.centre = x.mean(0)  # products of centred features lose no digits
            self.sums = torch.zeros(self.classes, x.shape[1], dtype=torch.float64)
            self.products = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
        x = x - self.centre
        self.counts += torch.bincount(labels, minlength=self.classes).double()
        self.sums.index_add_(0, labels, x)
        self.products += x.T @ x  # (F, F)

    def moments(self) -> Moments:
        """Of all that was added; classes without examples are left out."""
        present = self.counts > 0
        counts, sums = self.counts[present], self.sums[present]
        means = sums / counts.unsqueeze(1)  # (C, F)
        total = int(counts.sum())
        within = (self.products - means.T @ (counts.unsqueeze(1) * means)) / total  # (F, F)
        return Moments(means + self.centre, within, total)


@dataclass(frozen=True)
class AffineMap:
    """From a layer's features before a change of the network to those after it."""

    weights: Tensor
    """(F, F)"""
    shift: Tensor
    """(F,)"""
    residual: Tensor
    """The covariance of what the map does not explain (F, F)."""
    moved: float
    """How far features moved: mean squared change over the variance afterwards."""
    unexplained: float
    """The share of the variance afterwards that the map does not give."""

    @classmethod
    def between(cls, old: Tensor, new: Tensor) -> "AffineMap":
        """The least-squares map from (N, F) to (N, F), with a ridge towards the identity."""
        old, new = old.double(), new.double()
        old_mean, new_mean = old.mean(0), new.mean(0)
        before, after = old - old_mean, new - new_mean
        identity = torch.eye(old.shape[1], dtype=torch.float64)
        ridge = max(RIDGE * float(before.square().mean()), 1e-12) * len(old)
        gram = before.T @ before + ridge * identity  # (F, F)
        weights = torch.linalg.solve(gram, before.T @ after + ridge * identity)  # (F, F)
        variance = max(float(after.square().sum()), 1e-30)
        moved = float((new - old).square().sum()) / variance
        errors = before @ weights - after  # (N, F)
        unexplained = float(errors.square().sum()) / variance
        return cls(weights, new_mean - old_mean @ weights, errors.T @ errors / len(old), moved, unexplained)
