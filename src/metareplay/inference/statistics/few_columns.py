"""Densities of inputs of few columns: classes divided into overlapping groups, whose covariances have a common prior.

In few dimensions a covariance is known in full, and a ring or a shell takes many Gaussians. So every row belongs to all
groups of its class in proportion [Dempster et al. 1977], and a group with few rows is shaped by what all classes have
in common. The data stream through twice; the groups are found on the first examples of each class.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log, pi
from typing import NamedTuple

import torch
from torch import Tensor

from metareplay.inference.statistics.density import (
    SMALLEST_VARIANCE,
    InputDensity,
    first_examples,
    k_means,
    oracle_shrinkage,
)

Parts = Callable[[], Iterable[tuple[Tensor, Tensor]]]
"""Batches of inputs (B, ...) and class indices (B,)."""
SMALLEST_GROUP = 10
"""The fewest examples that a group's mean is taken over, so that it is not one of them."""
ROUNDS = 15
"""Rounds of expectation and maximisation."""
TRIED = 2
"""Larger numbers of groups that are tried after the best one."""


class Groups(NamedTuple):
    """Gaussians of one class."""

    mean: Tensor
    """(k, F)"""
    covariance: Tensor
    """(k, F, F)"""
    examples: Tensor
    """How many each stands for (k,)."""

    def log_densities(self, x: Tensor) -> Tensor:
        """Log share times density: (n, F) -> (n, k)."""
        factor = torch.linalg.cholesky(self.covariance)  # (k, F, F)
        away = (x - self.mean.unsqueeze(1)).mT  # (k, F, n)
        squares = torch.linalg.solve_triangular(factor, away, upper=False).square().sum(1)  # (k, F, n) -> (k, n)
        volume = 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1) + x.shape[1] * log(2 * pi)  # (k,)
        shares = (self.examples / self.examples.sum()).log()
        return (shares - 0.5 * volume - 0.5 * squares.T).contiguous()  # (k, n) -> (n, k)


@dataclass
class GroupSums:
    """Sums over the examples of one class, each divided among the groups; taken relative to an origin."""

    origin: Tensor
    """(F,)"""
    count: Tensor
    """(k,)"""
    total: Tensor
    """(k, F)"""
    squares: Tensor
    """(k, F, F)"""

    @classmethod
    def empty(cls, origin: Tensor, groups: int) -> "GroupSums":
        """Of no examples."""
        features = len(origin)
        zeros = (torch.zeros(groups, *shape, dtype=torch.float64) for shape in ((), (features,), (features, features)))
        return cls(origin, *zeros)

    def add(self, x: Tensor, shares: Tensor) -> None:
        """Some more examples (n, F), of which the groups have these shares (n, k)."""
        away = x - self.origin
        self.count += shares.sum(0)
        self.total += shares.T @ away
        self.squares += torch.einsum("nk,nf,ng->kfg", shares, away, away)

    def groups(self, common: Tensor) -> Groups:
        """The most probable Gaussians; each covariance counts F + 2 examples of the common one (F, F) beforehand.

        A class divided into k groups has the smaller ones the more there are: a k-th of its volume each.
        """
        features = len(self.origin)
        count = self.count.clamp_min(1e-12)
        mean = self.total / count.unsqueeze(1)  # (k, F)
        scatter = self.squares - count[:, None, None] * mean.unsqueeze(2) * mean.unsqueeze(1)  # (k, F, F)
        prior, scale = features + 2, len(self.count) ** (-2 / features)
        covariance = (prior * scale * common + scatter) / (prior + count)[:, None, None]
        return Groups(self.origin + mean, covariance, count)


def group_counts(parts: Parts, classes: int, components: int) -> dict[int, int]:
    """How many groups each class is divided into: as many as describe unseen rows best, at most ``components``."""
    examples = first_examples(parts, classes)
    common = common_covariance(list(examples.values()))
    return {label: _best_count(x, components, common) for label, x in examples.items()}


def density_of_rows(parts: Parts, classes: int, counts: Mapping[int, int]) -> InputDensity:
    """The density of rows of few columns, with this many groups of each class."""
    examples = first_examples(parts, classes)
    common = common_covariance(list(examples.values()))
    found = {label: fitted(x, counts.get(label, 1), common) for label, x in examples.items()}
    sums = {label: GroupSums.empty(of.mean.mean(0), len(of.mean)) for label, of in found.items()}
    for x, y in parts():
        for label, of_class in found.items():
            rows = x.flatten(1)[y == label].double()
            sums[label].add(rows, of_class.log_densities(rows).softmax(1))
    return _density([of_class.groups(common) for of_class in sums.values()])


def left_out_costs(x: Tensor, labels: Tensor, folds: Iterable[Tensor], counts: Mapping[int, int]) -> Tensor:
    """-log p of each row (n, ...) under the density of the rows outside its fold: (n,)."""
    costs, classes = torch.zeros(len(x), dtype=torch.float64), int(labels.max()) + 1
    for fold in folds:
        rest = torch.ones(len(x), dtype=torch.bool)
        rest[fold] = False
        if rest.any():
            others = [(x[rest], labels[rest])]
            costs[fold] = density_of_rows(partial(iter, others), classes, counts).costs(x[fold])[0]
    return costs


def common_covariance(classes: Sequence[Tensor]) -> Tensor:
    """The covariance within classes (n, F) each, shrunk to a sphere as far as there are few examples: (F, F)."""
    features, count = classes[0].shape[1], sum(map(len, classes))
    within = torch.cat([x - x.mean(0) for x in classes])
    covariance = within.T @ within / count  # (F, F)
    trace = float(covariance.trace())
    shrinkage = oracle_shrinkage(trace, float(covariance.square().sum()), count, features)
    sphere = (shrinkage + SMALLEST_VARIANCE) * trace / features + 1e-12
    return (1 - shrinkage) * covariance + sphere * torch.eye(features, dtype=torch.float64)


def fitted(x: Tensor, count: int, common: Tensor, *, smallest: int = SMALLEST_GROUP) -> Groups:
    """At most this many groups of the examples of a class (n, F); none of too few."""
    shares = _nearest(x, k_means(x, count) if count > 1 else x.mean(0, keepdim=True))  # (n, k)
    for _ in range(ROUNDS):
        shares = _without_small(shares, smallest)
        if shares.shape[1] == 1:
            break
        shares = _groups(x, shares, common).log_densities(x).softmax(1)
    return _groups(x, _without_small(shares, smallest), common)


def _groups(x: Tensor, shares: Tensor, common: Tensor) -> Groups:
    sums = GroupSums.empty(x.mean(0), shares.shape[1])
    sums.add(x, shares)
    return sums.groups(common)


def _nearest(x: Tensor, centres: Tensor) -> Tensor:
    """Each row belongs to its nearest centre (n, k)."""
    shares = torch.zeros(len(x), len(centres), dtype=torch.float64)
    return shares.scatter_(1, torch.cdist(x, centres).argmin(1, keepdim=True), 1.0)


def _without_small(shares: Tensor, smallest: int) -> Tensor:
    """Groups of too few examples are dropped one by one; their examples go to the others: (n, k) -> (n, fewer)."""
    while shares.shape[1] > 1:
        count = shares.sum(0)
        effective = count.square() / shares.square().sum(0).clamp_min(1e-30)  # of how many it is the mean; (k,)
        least = int(torch.minimum(count, effective).argmin())
        if float(torch.minimum(count, effective)[least]) >= smallest:
            break
        kept = shares[:, torch.arange(shares.shape[1]) != least]
        alone = kept.sum(1, keepdim=True) < 1e-9  # belonged to the dropped group only
        kept = torch.where(alone, 1.0 / kept.shape[1], kept)
        shares = kept / kept.sum(1, keepdim=True)
    return shares


def _best_count(x: Tensor, most: int, common: Tensor) -> int:
    """The number of groups by which each half of the examples (n, F) of a class describes the other best."""
    choices = [count for count in (1, 2, 4, 8, 12, 16) if count <= max(1, min(most, len(x) // SMALLEST_GROUP))]
    if len(choices) == 1:
        return 1
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    halves, costs = (x[order[::2]], x[order[1::2]]), list[float]()
    for count in choices:
        fits = (fitted(half, count, common, smallest=SMALLEST_GROUP // 2) for half in halves)
        costs.append(sum(_cost(fit, unseen) for fit, unseen in zip(fits, reversed(halves), strict=True)))
        if min(costs[-TRIED:]) > min(costs):  # even larger numbers would be worse
            break
    return choices[costs.index(min(costs))]


def _cost(groups: Groups, x: Tensor) -> float:
    return -float(groups.log_densities(x).logsumexp(1).sum())


def _density(classes: Sequence[Groups]) -> InputDensity:
    """The Gaussians of all classes by their principal directions, as they are stored."""
    mean, covariance, count = (torch.cat(tensors) for tensors in zip(*classes, strict=True))
    values, vectors = torch.linalg.eigh(covariance)  # ascending; (G, F), (G, F, F)
    variances = values.flip(1).clamp_min(1e-12)
    directions = vectors.mT.flip(1)  # (G, F, F), directions in rows
    return InputDensity(mean, directions.contiguous(), variances, variances[:, -1], count / count.sum())
